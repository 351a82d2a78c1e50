"""Webhooks: receivers inside the process that deliver the records of a queue to an HTTP endpoint."""
