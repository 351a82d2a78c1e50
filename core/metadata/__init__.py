"""SQLite: topics, configs and groups, behind one writer thread."""
