"""Sink connectors for tables in files: Parquet, Delta Lake and Apache Iceberg."""
