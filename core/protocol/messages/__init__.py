"""One file per API: every version of its request and response, as data."""
