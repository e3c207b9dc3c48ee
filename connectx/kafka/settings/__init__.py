"""Settings of Kafka clients: spellings, roles, security and logging."""
