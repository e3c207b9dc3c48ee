"""Sinks of tables in files on Azure Blob Storage: `make azure`."""
