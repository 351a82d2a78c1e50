"""A frozen cluster: it takes no more records, so that they can be moved to another one."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class FreezeState(NamedTuple):
    """Whether writes are refused, and since when (ms since the Unix epoch; None: they are not)."""

    frozen: bool
    since_ms: int | None


class Freezing(Protocol):
    """The switch that refuses writes, as `broker.freezing`.

    A frozen cluster refuses records and changes of topics. It serves reads, members of groups and their commits; a
    transaction that is open may end. It stays frozen over a restart.
    """

    @property
    def state(self) -> FreezeState:
        """Whether writes are refused."""

    async def freeze(self) -> FreezeState:
        """Refuse writes from now on; durable when it returns. Raises NOT_CONTROLLER, KAFKA_STORAGE_ERROR."""
        ...

    async def thaw(self) -> FreezeState:
        """Take writes again; durable when it returns. Raises NOT_CONTROLLER, KAFKA_STORAGE_ERROR."""
        ...
