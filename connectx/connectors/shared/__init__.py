"""Parts that several connectors use."""
