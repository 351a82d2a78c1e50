"""The embedded implementation of the facade: one broker over one data directory."""
