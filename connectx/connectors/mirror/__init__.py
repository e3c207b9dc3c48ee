"""MirrorSource: topics of another Kafka cluster, record by record as they are there."""
