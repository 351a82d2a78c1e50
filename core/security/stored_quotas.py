"""Quotas: the client quotas of the cluster, in the store and in the table that is asked for each request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.metadata.quotas import put_quotas, remove_quotas
from core.metadata.store import Store
from core.security.keeper import Keeper
from core.security.quotas import QuotaTable, check_quota, entity_of
from core.vocabulary.quotas import Entity, QuotaEntry, QuotaFilter


class Quotas:
    """The client quotas, as `broker.quotas`. Touched on the event loop only."""

    def __init__(self, config: Config, store: Store, keeper: Keeper, table: QuotaTable) -> None:
        self._config = config
        self._store = store
        self._keeper = keeper
        self._table = table

    def load(self, quotas: Iterable[tuple[Entity, str, float]]) -> None:
        """Take the quotas from the store."""
        self._table.replace(quotas)

    def describe(self, wanted: QuotaFilter) -> list[QuotaEntry]:
        """Return the entities that fit a filter, sorted, with their quotas."""
        return self._table.matching(wanted)

    async def alter(
        self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> Mapping[str, float]:
        """Set quotas of an entity, all or none; None removes one. Return those that it has then, durably.

        Raises INVALID_REQUEST for an entity, a key or a value that cannot be, POLICY_VIOLATION for too many,
        NOT_CONTROLLER.
        """
        entity = entity_of(entity)
        for key, value in changes.items():
            check_quota(entity, key, value)
        self._keeper.require()
        now = self._table.get(entity)
        new = [(entity, key, value) for key, value in changes.items() if value is not None]
        gone = [(entity, key) for key, value in changes.items() if value is None and key in now]
        if len(self._table) + sum(key not in now for _, key, _ in new) > self._config.max_quotas:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"There are {len(self._table)} quotas, as many as there may be (max_quotas). Use quotas of the "
                "default user or client id.",
            )
        if validate_only:
            return now
        if effects := [
            effect for rows, effect in ((new, put_quotas(new)), (gone, remove_quotas(gone))) if rows
        ]:
            stored = self._store.submit(effects)
            stored.add_done_callback(lambda done: self._stored(done, entity, changes))
            # Carried out though its client may leave: what the store has must be in force as well.
            await asyncio.shield(stored)
        return self._table.get(entity)

    async def remove(self, entity: Entity) -> None:
        """Remove all quotas of an entity. Raises RESOURCE_NOT_FOUND, INVALID_REQUEST, NOT_CONTROLLER."""
        values = self._table.get(entity_of(entity))
        if not values:
            raise BrokerError(ErrorCode.RESOURCE_NOT_FOUND, "This entity has no quotas.")
        await self.alter(entity, dict.fromkeys(values))

    def _stored(
        self, done: asyncio.Future[None], entity: Entity, changes: Mapping[str, float | None]
    ) -> None:
        if not done.cancelled() and done.exception() is None:
            self._table.change(entity, changes)
