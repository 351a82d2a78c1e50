"""The surface of the REST Proxy, version 2."""
