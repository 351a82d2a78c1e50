"""The broker: logs, groups, offsets and the TCP doors. It knows no HTTP."""
