"""Differential: what we write, kio reads; what kio writes of it, are the same bytes. Every version it knows.

kio 0.6.2 was generated from Kafka's definitions when they still held the versions that Kafka 4 dropped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from io import BytesIO
from random import Random

import pytest
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from msgspec import Struct

from core.protocol.apis import APIS, Api
from core.protocol.schema import Field, Kind, fields_of
from tests.core.protocol.samples import SAMPLES, Maker, Side, sides

# What our definitions have beyond kio's: versions that came after it.
NEWER = {
    0: 12, 1: 18, 2: 10, 3: 13, 8: 10, 9: 10, 15: 6, 26: 5, 27: 2, 28: 5, 35: 5, 45: 1, 57: 2, 60: 2, 66: 2,
    68: 1, 69: 1, 74: 1, 76: 1, 77: 1, 78: 1, 79: 1, 90: 0, 91: 0, 92: 0,
}  # fmt: skip

CODES = [int(code) for code in ErrorCode]


def number(random: Random, field: Field) -> int | None:
    """Integers that kio can hold: it makes enums, dates and durations of them."""
    if field.name.endswith("error_code"):
        return random.choice(CODES)
    if Kind.INT64 in (field.kind, field.element):
        return random.choice((0, 1, 2**40, random.randrange(2**41)))
    return None


def kio_class(api: Api, version: int, side: Side) -> type:
    module = load_payload_module(api.key, version, EntityType[side.name])
    name = "ListClientMetricsResources" if api.name == "ListConfigResources" else api.name  # before KIP-1142
    loaded: type = getattr(module, name + side.name.capitalize())
    return loaded


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_kio_and_we_write_the_same_bytes(api: Api) -> None:
    for version in range(api.min_version, min(api.max_version + 1, NEWER.get(api.key, 99))):
        for side in sides(api):
            theirs = kio_class(api, version, side)
            assert theirs.__flexible__ == api.is_flexible(version)
            for seed in range(SAMPLES):
                message = Maker(seed, number=number).message(side.type, version)
                raw = side.encode(api.key, version, message)
                instance, size = entity_reader(theirs)(raw, 0)
                assert size == len(raw)
                written = BytesIO()
                entity_writer(theirs)(written, instance)
                assert written.getvalue() == raw, f"{side.name} v{version}: {message}"
                assert side.decode(api.key, version, written.getvalue()) == message


def of_defaults(kind: type[Struct], version: int) -> Struct:
    """A message of defaults, with one element of defaults in each array of messages."""
    structs = {
        field.name: field.struct for field in fields_of(kind) if version in field.versions and field.struct
    }
    arrays = {field.name for field in fields_of(kind) if field.kind is Kind.ARRAY}
    return kind(
        **{name: [of_defaults(struct, version)] for name, struct in structs.items() if name in arrays}
    )


def values_and_defaults(instance: object) -> Iterator[tuple[str, object, object]]:
    """Each field of a message that kio has read, and of the messages in it: name, value, kio's default."""
    for field in dataclasses.fields(instance):  # type: ignore[arg-type]
        value = getattr(instance, field.name)
        inner = value[0] if isinstance(value, tuple) and value else value
        if dataclasses.is_dataclass(inner):
            yield from values_and_defaults(inner)
        else:
            yield field.name, value, field.default


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_field_has_kafkas_default(api: Api) -> None:
    """Where Kafka's definition names none, the default is zero, empty or false. Fields with a tag are left out of
    the bytes here, so that this does not see theirs."""
    for version in range(api.min_version, min(api.max_version + 1, NEWER.get(api.key, 99))):
        for side in sides(api):
            raw = side.encode(api.key, version, of_defaults(side.type, version))
            instance, _ = entity_reader(kio_class(api, version, side))(raw, 0)
            for name, value, default in values_and_defaults(instance):
                if default is not dataclasses.MISSING:
                    assert value == default, f"{side.name} v{version}: {name}"
                else:
                    assert not value or value == datetime.fromtimestamp(0, UTC), (
                        f"{side.name} v{version}: {name}"
                    )
