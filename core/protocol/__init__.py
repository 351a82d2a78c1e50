"""Kafka's binary protocol, sans-IO: bytes to messages and back."""
