"""The Kafka listener: one file per family of APIs."""
