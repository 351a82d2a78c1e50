"""Who a client is, and how it proves that: principals, users, passwords, tokens, SASL mechanisms."""
