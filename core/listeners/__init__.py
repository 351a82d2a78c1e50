"""Sockets: the TCP listeners."""
