"""Java connectors and tasks of a worker: they run in a child JVM, in Kafka Connect's own Worker."""
