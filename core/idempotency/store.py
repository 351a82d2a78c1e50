"""Idempotency keys in the metadata store, with their limits: age, number, bytes."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from core.clock import Clock
from core.config import Config
from core.idempotency.plan import Places, Plan, decode_places, decode_plan, encode
from core.log.retention import SettledTime
from core.metadata.idempotency import (
    ROW_BYTES,
    KeyRow,
    bind,
    find,
    load_open,
    put_answer,
    put_places,
    remove,
    remove_oldest,
    totals,
)
from core.metadata.store import Effect, Store

# About the size of one part of a stored plan, in bytes.
_PART_BYTES = 50
# Beyond a limit by this factor, keys are removed at once and not with the next periodic check.
_FAR_BEYOND = 1.1


class OpenKey(NamedTuple):
    """A key that is bound and not answered. `places_known`: places were stored."""

    digest: bytes
    plan: Plan
    places: Places
    places_known: bool


class KeyStore:
    """Stores keys, and removes old ones.

    `bind` and `find` are durable when they return. The others return a future of the store, which is done when the
    change is durable. They raise KAFKA_STORAGE_ERROR if the store accepts no more.
    """

    def __init__(self, config: Config, clock: Clock, store: Store) -> None:
        self._config = config
        self._store = store
        # Not the clock itself: a clock that jumps a day ahead must not remove all keys at once.
        self._time = SettledTime(clock)
        # The number of keys, and their bytes at most: answers are compressed when they are stored.
        self._keys = 0
        self._size = 0
        self._counted = False
        self._expiring = False
        self._early: asyncio.Future[None] | None = None

    # --- one key -------------------------------------------------------------------------------------------

    async def bind(self, digest: bytes, fingerprint: bytes, plan: Plan) -> KeyRow | None:
        """Store a new key with its plan and return None; or return its row if it is stored already."""
        now = self._time.now_ms()
        expired = now - self._config.idempotency_ttl_ms
        query = bind(digest, fingerprint, encode(plan), now_ms=now, expired_ms=expired)
        row = await self._store.read(query)
        if row is None:
            self._count(1, ROW_BYTES + _PART_BYTES * len(plan.parts))
        return row

    async def find(self, digest: bytes) -> KeyRow | None:
        """Return the row of a key; None if there is none, or if it has expired."""
        expired = self._time.now_ms() - self._config.idempotency_ttl_ms
        return await self._store.read(find(digest, expired_ms=expired))

    def put_answer(self, digest: bytes, answer: bytes) -> asyncio.Future[None]:
        """Store the answer of a key."""
        self._count(0, len(answer))
        return self._store.submit([put_answer(digest, answer)])

    def answered(self, digest: bytes, fingerprint: bytes, answer: bytes) -> list[Effect]:
        """Return the effects that store a new key with its answer, for a decision; see `count_answered`."""
        now = self._time.now_ms()
        expired = now - self._config.idempotency_ttl_ms
        bound = bind(digest, fingerprint, b"", now_ms=now, expired_ms=expired)
        return [lambda connection: bound(connection) and None, put_answer(digest, answer)]

    def count_answered(self, answer: bytes) -> None:
        """Count a key that a decision has stored."""
        self._count(1, ROW_BYTES + len(answer))

    def put_places(self, places: list[tuple[bytes, Places]]) -> asyncio.Future[None]:
        """Store where batches of keys are known to be."""
        return self._store.submit([put_places([(digest, encode(one)) for digest, one in places])])

    def remove(self, digest: bytes) -> asyncio.Future[None]:
        """Delete a key."""
        self._keys -= 1
        return self._store.submit([remove(digest)])

    async def unanswered(self) -> list[OpenKey]:
        """Return all keys that are bound and not answered."""
        found = []
        for digest, plan_data, places_data in await self._store.read(load_open):
            plan = decode_plan(plan_data)
            found.append(OpenKey(digest, plan, decode_places(places_data, plan), bool(places_data)))
        return found

    # --- limits --------------------------------------------------------------------------------------------

    async def expire(self) -> None:
        """Delete keys that are too old, and the oldest answered ones if there are too many."""
        if self._expiring:
            return
        self._expiring = True
        try:
            await self._expire()
        finally:
            self._expiring = False

    async def _expire(self) -> None:
        store, config = self._store, self._config
        now = self._time.now_ms()
        expired = now - config.idempotency_ttl_ms
        while removed := await store.read(remove_oldest(before_ms=expired, expired_ms=expired)):
            self._keys -= removed
        if not self._counted or self._size > config.idempotency_max_bytes:
            # With a million keys this takes a third of a second, in which nothing is committed: only if necessary.
            self._keys, self._size = await store.read(totals)
            self._counted = True
        too_many = self._keys - config.idempotency_max_keys
        if (too_large := self._size - config.idempotency_max_bytes) > 0:
            too_many = max(too_many, 1 + too_large * self._keys // self._size)
        while too_many > 0:
            query = remove_oldest(before_ms=now, expired_ms=expired, limit=too_many)
            if not (removed := await store.read(query)):
                return
            self._size -= self._size * removed // self._keys
            self._keys -= removed
            too_many -= removed

    def _count(self, keys: int, size: int) -> None:
        self._keys += keys
        self._size += size
        config = self._config
        if not self._expiring and (
            self._keys > _FAR_BEYOND * config.idempotency_max_keys
            or self._size > _FAR_BEYOND * config.idempotency_max_bytes
        ):
            self._early = asyncio.ensure_future(self.expire())
            self._early.add_done_callback(lambda done: done.cancelled() or done.exception())
