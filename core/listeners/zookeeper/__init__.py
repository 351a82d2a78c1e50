"""Registration in ZooKeeper, where clients of Kafka 0.7 find their brokers and each other."""
