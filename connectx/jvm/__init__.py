"""What the embedded Kafka broker and the local Spark driver share: Java, jars, child processes, class archives."""
