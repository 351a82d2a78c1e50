"""A blocking Kafka client over `core.protocol`: what drivers and workers ask a broker."""
