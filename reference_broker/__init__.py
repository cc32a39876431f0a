"""The reference implementation: a broker, its wire protocols, its high availability, and its failover client."""
