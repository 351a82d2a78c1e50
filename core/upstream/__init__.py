"""The facade over an existing Kafka cluster: topics, partitions and groups are those of its brokers."""
