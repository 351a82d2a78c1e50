"""Ports for servers that must be told their port before they bind it."""

from __future__ import annotations

import random
import socket

# Below the ports that Linux gives to connections and to port 0: what is free here is not given to another process
# in the seconds that a JVM needs until it binds it.
_PORTS = range(20_000, 32_000)
# Not the generator that Hypothesis seeds: two test processes must not choose the same.
_choose = random.SystemRandom().choice


def free_ports(count: int) -> list[int]:
    """Return different ports of 127.0.0.1 that nothing listens on."""
    found: list[int] = []
    while len(found) < count:
        port = _choose(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found
