"""The line protocol over TCP."""
