"""MirrorSource: topics of another Kafka cluster, copied record by record."""
