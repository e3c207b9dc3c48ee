"""Workers in separate processes: child, owner, wire format and recovery."""
