"""The broker as a deterministic state machine: (command, now) -> effects; no socket, clock, thread or chance inside."""
