"""Idempotency-Key: a write that is repeated with its key is not made twice."""
