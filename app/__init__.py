"""HTTP: the only package that knows routes, JSON bodies and status codes."""
