"""What survives a crash, and the gate that lets nothing out before it would."""
