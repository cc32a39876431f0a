"""The failover client: JMS objects above, any wire below, and between them the engine that survives failures."""
