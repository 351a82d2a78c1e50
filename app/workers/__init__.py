"""Several processes on one port: a small parent, and workers that it starts, restarts and replaces one by one."""
