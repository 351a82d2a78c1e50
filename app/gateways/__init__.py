"""Several gateways serve one cluster: each consumer and each idempotency key has one owner, the others forward."""
