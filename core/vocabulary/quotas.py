"""Client quotas as callers pass them: entities, keys, filters (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

Entity = tuple[tuple[str, str | None], ...]
"""What a quota belongs to: (type, name) of a user, a client id, both in this order, or an IP. None is the default."""


class Match(IntEnum):
    """How a part of a filter matches, as the protocol numbers it."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class QuotaFilter(NamedTuple):
    """A filter for entities: (type, match, name) for each type. `strict`: an entity has no other types."""

    parts: tuple[tuple[str, Match, str | None], ...] = ()
    strict: bool = False

    def fits(self, entity: Entity) -> bool:
        """Return whether an entity fits."""
        names = dict(entity)
        if self.strict and len(names) != len(self.parts):
            return False
        for kind, match, name in self.parts:
            if kind not in names:
                return False
            if match is not Match.ANY and names[kind] != (None if match is Match.DEFAULT else name):
                return False
        return True


class QuotaEntry(NamedTuple):
    """An entity with its quotas by key, in units per second (percent for `request_percentage`)."""

    entity: Entity
    values: Mapping[str, float]


class Quotas(Protocol):
    """Client quotas, as `broker.quotas`."""

    def describe(self, wanted: QuotaFilter) -> list[QuotaEntry]:
        """Return the entities that fit a filter, sorted, with their quotas."""

    async def alter(
        self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> Mapping[str, float]:
        """Set quotas of an entity, all or none; None removes one. Return those that it has then, durably.

        Raises INVALID_REQUEST, POLICY_VIOLATION, NOT_CONTROLLER.
        """
        ...

    async def remove(self, entity: Entity) -> None:
        """Remove all quotas of an entity. Raises RESOURCE_NOT_FOUND, INVALID_REQUEST, NOT_CONTROLLER."""
