"""Client quotas in SQLite: rows in, rows out, no rules of their own.

A row is (entity, key, value); the entity is a JSON array of [type, name] pairs, in which a null name is the default.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import Connection

from core.metadata.groups import Effect, all_rows, many
from core.metadata.models import client_quotas
from core.metadata.statements import sql
from core.vocabulary.quotas import Entity

_PUT, _REMOVE = sql("client_quotas.put/1"), sql("client_quotas.delete/1")


def put_quotas(quotas: Sequence[tuple[Entity, str, float]]) -> Effect:
    """The effect that stores quotas, new or changed."""
    return many(_PUT, [(_text(entity), key, value) for entity, key, value in quotas])


def remove_quotas(quotas: Sequence[tuple[Entity, str]]) -> Effect:
    """The effect that removes quotas."""
    return many(_REMOVE, [(_text(entity), key) for entity, key in quotas])


def load_quotas(connection: Connection) -> list[tuple[Entity, str, float]]:
    """All quotas."""
    return [
        (tuple((kind, name) for kind, name in json.loads(entity)), key, value)
        for entity, key, value in all_rows(connection, client_quotas, "")
    ]


def _text(entity: Entity) -> str:
    return json.dumps(entity, ensure_ascii=False, separators=(",", ":"))
