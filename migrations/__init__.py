"""How the SQLite schema changes."""
