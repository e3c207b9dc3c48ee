"""Connectors that read and write with Spark: its formats, functions over DataFrames, PySpark data sources."""
