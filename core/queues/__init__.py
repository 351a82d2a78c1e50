"""Queues: records of topics, each leased to one receiver at a time and settled by itself (share groups, KIP-932)."""
