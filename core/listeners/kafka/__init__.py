"""The Kafka binary door: one file per family of APIs."""
