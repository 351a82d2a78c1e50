"""HTTP below the surfaces: connections, requests, the router, origins, metrics."""
