"""The broker: logs, groups, offsets and the TCP listeners. It knows no HTTP."""
