"""Export and import of connectors: configurations, target states and offsets as JSON."""
