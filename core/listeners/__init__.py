"""Sockets: the TCP doors."""
