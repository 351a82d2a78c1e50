"""Principals, and how clients prove them: certificates, users, passwords, tokens, SASL mechanisms."""
