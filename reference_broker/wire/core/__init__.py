"""The core wire: the broker's own commands in numbered packets."""
