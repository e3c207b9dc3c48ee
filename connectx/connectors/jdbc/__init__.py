"""Connectors for SQL databases: SQLite, PostgreSQL, DuckDB."""
