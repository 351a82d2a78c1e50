"""Managed consumers: the broker is the group's member, reads for the consumer and stores its batches."""
