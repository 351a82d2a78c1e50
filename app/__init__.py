"""HTTP: the only room that knows routes, JSON bodies and status codes."""
