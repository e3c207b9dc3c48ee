"""The main job end to end: flights from a CSV file through Kafka into PostgreSQL, while workers are killed."""
