"""Kafka 0.7: byte addresses over the log, its requests, its listener and its registration in ZooKeeper."""
