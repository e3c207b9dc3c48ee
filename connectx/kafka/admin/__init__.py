"""Administration and inspection of Kafka: topics, groups, transactions, fencing."""
