"""STOMP 1.0, 1.1 and 1.2: the codec, JMS headers on frames, and the node's side of a connection."""
