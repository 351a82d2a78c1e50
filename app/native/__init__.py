"""The native API, `/api/v1`: everything the broker can do, for curl, browsers and generated SDKs."""
