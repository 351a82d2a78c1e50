"""Merged reads of many topics and Server-Sent Events."""
