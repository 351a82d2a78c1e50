"""The statuses of refusals that any native route that writes may have, beside those of every route."""

ON_WRITES = (403, 408, 413, 415, 503, 507)
