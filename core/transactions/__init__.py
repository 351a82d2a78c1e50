"""Transactions: the coordinator of transactional ids."""
