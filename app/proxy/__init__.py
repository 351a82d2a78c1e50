"""The REST Proxy v2 surface at the root: what clients of the existing Kafka proxies speak."""
