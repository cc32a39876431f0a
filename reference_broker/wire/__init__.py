"""Codecs and listeners: what brokers and clients say on a socket."""
