"""SQLite: topics, configs and groups, written by one thread."""
