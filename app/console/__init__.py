"""The console: one static page over the public HTTP API, and its route."""
