"""Who may serve: the rules by which the nodes of a pair agree on their roles."""
