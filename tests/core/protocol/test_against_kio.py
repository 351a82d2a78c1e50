"""Differential: what we write, kio reads; what kio writes of it, are the same bytes. Every version it knows.

kio 0.6.2 was generated from Kafka's definitions when they still held the versions that Kafka 4 dropped.
"""

from __future__ import annotations

from io import BytesIO
from random import Random

import pytest
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from core.protocol.apis import APIS, Api
from core.protocol.schema import Field, Kind
from tests.core.protocol.samples import SAMPLES, Maker, Side, sides

# What our definitions have beyond kio's: versions that came after it.
NEWER = {
    0: 12, 1: 18, 2: 10, 3: 13, 8: 10, 9: 10, 15: 6, 26: 5, 27: 2, 28: 5, 35: 5, 45: 1, 57: 2, 60: 2, 66: 2,
    68: 1, 69: 1, 74: 1, 76: 1, 77: 1, 78: 1, 79: 1,
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
