"""Managed consumers: the broker is the group's member, reads for the consumer and keeps what it was given."""
