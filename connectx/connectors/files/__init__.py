"""Connectors that read and write files."""
