"""Whether this process may change users, access rules and quotas: what `core.security` needs to know of a cluster."""

from __future__ import annotations

from typing import Protocol


class Keeper(Protocol):
    """Says whether this process keeps what is about to change. The controller of replicated brokers is one."""

    def require(self) -> None:
        """Raise NOT_CONTROLLER unless this process keeps it."""


class Alone:
    """The keeper of a process that keeps everything itself: a gateway, whose users are its own."""

    def require(self) -> None:
        """Return at once: no other process keeps these."""
