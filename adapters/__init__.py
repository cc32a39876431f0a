"""How a client API or a broker product is plugged in."""
