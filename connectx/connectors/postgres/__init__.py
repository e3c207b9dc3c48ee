"""Connectors for PostgreSQL: the sink, and change data capture in `cdc`."""
