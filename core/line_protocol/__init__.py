"""The line protocol, for netcat: codec, connection, listener and commands."""
