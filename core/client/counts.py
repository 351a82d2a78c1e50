"""What a client counts about its connections and requests, for the metrics of the process."""

from __future__ import annotations

from core.counters import Meters, Tally


class ClientCounts:
    """The counts of one client. They start at zero with the client and only rise. Touched on the event loop only."""

    def __init__(self) -> None:
        # Answered requests by API key: the time from the request to its answer, and their bytes.
        self.requests: Meters[int] = Meters()
        # Requests without an answer, by API key: the connection ended first.
        self.lost: Tally[int] = Tally()
        # Milliseconds for which brokers asked this client to wait (throttle_time_ms), by API key.
        self.throttled_ms: Tally[int] = Tally()
        self.connections = 0
        self.failed_connections = 0
        self.failed_logins = 0
