"""Idempotency-Key: a write that a client repeats with its key is appended once."""
