"""connectx: Kafka Connect's distributed runtime in Python, with its data pipeline on Spark."""
