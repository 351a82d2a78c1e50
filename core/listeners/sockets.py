"""Bind the socket of a listener: names, IPv4 and IPv6, and a one-line error if it fails.

TCP and HTTP listeners bind here. A host name may have several addresses. A listener takes one of them: an IPv4
address if there is one, because most clients try that first.
"""

from __future__ import annotations

import errno
import socket

from core.config import Endpoint
from core.errors import StartupError


def bind_socket(
    endpoint: Endpoint, *, backlog: int | None = None, only_ipv6: bool = False, reuse_port: bool = False
) -> socket.socket:
    """Return a bound, non-blocking stream socket for an endpoint. Raises StartupError with one line.

    With `backlog` the socket listens at once: the system accepts that many connections before the caller does. So a
    second process fails here and not later. With `only_ipv6` a socket for `[::]` leaves IPv4 to another listener on
    the same port. Without it the system decides; Linux serves both. With `reuse_port`
    other sockets of this user may have the same address, if they have that option too.
    """
    try:
        found = socket.getaddrinfo(
            endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise _refused(endpoint, error) from None
    family, kind, protocol, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    try:
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _refused(endpoint, error) from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if only_ipv6 and family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setblocking(False)
        bound.bind(address)
        if backlog is not None:
            bound.listen(backlog)
    except OSError as error:
        bound.close()
        raise _refused(endpoint, error) from None
    return bound


def _refused(endpoint: Endpoint, error: OSError) -> StartupError:
    other = f"--listener {endpoint.scheme}://HOST:PORT"
    if error.errno == errno.EADDRINUSE:
        advice = f"the port is taken. Stop the process that uses it, or choose another with {other}."
    else:
        advice = f"{error.strerror or error}. Choose another address with {other}."
    return StartupError(f"Cannot listen on {endpoint}: {advice}")
