"""Differential: what we write, kafka-python reads as the same values by the same names, and writes again."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from random import Random
from uuid import UUID

import kafka.protocol
import pytest
from kafka.protocol.api_message import ApiMessage
from msgspec import Struct

from core.protocol.apis import APIS, Api
from core.protocol.schema import Field, fields_of
from tests.core.protocol.samples import SAMPLES, Maker, sides

# APIs that kafka-python does not have.
MISSING = {68, 69, 71, 72, 76, 77, 78, 79, 90, 91, 92}


def _classes() -> dict[str, type]:
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and "generate" not in module.name:
            import_module(module.name)
    found: dict[str, type] = {}
    waiting = [ApiMessage]
    while waiting:
        classes = waiting.pop().__subclasses__()
        waiting += classes
        found.update({one.__name__: one for one in classes})
    return found


THEIRS = _classes()


def number(_random: Random, field: Field) -> int | None:
    """kafka-python reads an ApiVersions response with an error as version 0, whatever it is."""
    return 0 if field.name == "error_code" else None


def same(ours: object, theirs: object, version: int, path: str) -> None:
    """Compares values by name."""
    if isinstance(ours, Struct):
        for field in fields_of(type(ours)):
            if version not in field.versions:
                continue
            value = getattr(ours, field.name)
            if field.name.endswith("authorized_operations"):
                continue  # a set of bits there; the bytes are compared anyway
            other = getattr(theirs, field.name)
            if other is None and field.tag is not None and value == field.default:
                continue  # a tagged struct that was not sent
            same(value, other, version, f"{path}.{field.name}")
    elif isinstance(ours, list):
        assert isinstance(theirs, list), path
        assert len(ours) == len(theirs), path
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            same(one, other, version, f"{path}[{index}]")
    elif isinstance(ours, UUID):
        assert str(ours) == str(theirs or UUID(int=0)), path
    elif isinstance(ours, memoryview):
        assert bytes(ours) == bytes(theirs), path  # type: ignore[call-overload]
    else:
        assert ours == theirs, path


@pytest.mark.parametrize(
    "api", [api for api in APIS.values() if api.key not in MISSING], ids=lambda api: api.name
)
def test_kafka_python_and_we_agree_on_bytes_and_names(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        for side in sides(api):
            theirs = THEIRS[api.name + side.name.capitalize()]
            for seed in range(SAMPLES):
                maker = Maker(seed, number=number if api.name == "ApiVersions" else None)
                message = maker.message(side.type, version)
                raw = side.encode(api.key, version, message)
                read = theirs.decode(raw, version=version)  # type: ignore[attr-defined]
                same(message, read, version, side.name)
                read._header = None
                assert read.encode(version=version) == raw, f"{side.name} v{version}: {message}"
