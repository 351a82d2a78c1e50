"""Which Host headers this server answers.

A DNS name that an attacker points at 127.0.0.1 would make this server part of the attacker's site in the eyes of a
browser (DNS rebinding). So only known names are answered: `localhost`, the hosts of the listeners, the advertised
one, and those of `--allowed-host`. An IP address in the Host header is always answered: it cannot be such a name.
"""

from __future__ import annotations

import ipaddress

from app.errors import Problem
from core.config import Config

# Host headers that were accepted and need not be checked again.
_REMEMBERED_HOSTS = 1000


class Hosts:
    """The host names of one configuration."""

    def __init__(self, config: Config) -> None:
        names = {"localhost", *config.http_allowed_hosts}
        names |= {e.host.lower() for e in config.listeners}
        if config.advertised is not None:
            names.add(config.advertised.host.lower())
        self._names = frozenset(names)
        self._good: set[bytes] = set()

    def check(self, host: bytes) -> None:
        """Refuse a Host header of a foreign name (421), or one that cannot be read (400). Raises Problem."""
        if host in self._good:
            return
        name = host_name(host)
        if name is None:
            raise Problem("malformed-request", "The Host header cannot be read.")
        if not (name in self._names or name.endswith(".localhost") or _is_address(name)):
            raise Problem("unknown-host", f"This server does not answer for the host name {name[:80]!r}.")
        if len(self._good) < _REMEMBERED_HOSTS:
            self._good.add(host)


def host_name(host: bytes) -> str | None:
    """Return the name or address in a Host header, without its port; None if it cannot be one."""
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        name, bracket, port = text[1:].partition("]")
        if not bracket or (port and not _is_port(port)):
            return None
        return name
    name, colon, port = text.partition(":")
    if not name or (colon and not _is_port(":" + port)):
        return None
    return name.rstrip(".")


def _is_port(text: str) -> bool:
    return text == ":" or (text[0] == ":" and text[1:].isascii() and text[1:].isdigit() and len(text) <= 6)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
