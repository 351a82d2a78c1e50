"""The line protocol, for netcat: codec, connection, listener and what a line asks for."""
