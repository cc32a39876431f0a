"""Pages for people, made from certificates and nothing else."""
