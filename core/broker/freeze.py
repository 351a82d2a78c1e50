"""The switch that refuses writes, for a move to another cluster. It is a single value of the store."""

from __future__ import annotations

from collections.abc import Mapping

from core.clock import Clock
from core.errors import BrokerError, ErrorCode
from core.metadata.store import Store
from core.metadata.topics import put_setting, remove_setting
from core.replication.controller import Controller
from core.vocabulary.freeze import FreezeState

# The time of the freeze in ms. All brokers of a cluster have it.
SETTING = "cluster.frozen"
# Seconds after which an HTTP client should try again. A cut-over takes minutes.
RETRY_AFTER = 5


class Freeze:
    """Whether this broker refuses writes, as `broker.freezing`."""

    def __init__(self, clock: Clock, store: Store, controller: Controller) -> None:
        self._clock = clock
        self._store = store
        self._controller = controller
        self._since_ms: int | None = None

    @property
    def state(self) -> FreezeState:
        """Whether writes are refused."""
        return FreezeState(self._since_ms is not None, self._since_ms)

    def load(self, settings: Mapping[str, str]) -> None:
        """Take over what the store has."""
        since = settings.get(SETTING)
        self._since_ms = None if since is None else int(since)

    def require_thawed(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Raise `code` if writes are refused. It is one that Kafka's clients retry."""
        if self._since_ms is not None:
            raise BrokerError(
                code,
                "This cluster is frozen while its records move to another one: it takes no records and no changes of "
                "topics now. Try again later. `sluice move thaw` ends the freeze.",
                retry_after=RETRY_AFTER,
            )

    async def freeze(self) -> FreezeState:
        """Refuse writes from now on; durable when it returns. Raises NOT_CONTROLLER, KAFKA_STORAGE_ERROR."""
        self._controller.require()
        if self._since_ms is None:
            now = self._clock.wall_ms()
            # At once, so that no record is taken while the store commits.
            self._since_ms = now
            try:
                await self._store.submit([put_setting(SETTING, str(now))])
            except BaseException:
                self._since_ms = None
                raise
        return self.state

    async def thaw(self) -> FreezeState:
        """Take writes again; durable when it returns. Raises NOT_CONTROLLER, KAFKA_STORAGE_ERROR."""
        self._controller.require()
        if self._since_ms is not None:
            await self._store.submit([remove_setting(SETTING)])
            self._since_ms = None
        return self.state
