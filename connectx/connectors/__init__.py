"""The connectors that connectx ships, and what a connector is."""
