"""Principals, users, passwords, tokens and SASL mechanisms: what a client is, and how it proves that."""
