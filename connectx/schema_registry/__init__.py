"""An embedded schema registry: Confluent's REST API over a compacted topic, for notebooks, tests and one machine."""
