"""The connectors that connectx ships."""
