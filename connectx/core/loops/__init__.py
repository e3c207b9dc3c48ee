"""What the loops of source and sink tasks share: life cycle, messages, retries. Pure."""
