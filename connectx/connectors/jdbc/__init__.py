"""Connectors for SQL databases: SQLite, PostgreSQL, DuckDB, MySQL and MariaDB."""
