"""Every message in every version: there and back, cut at each byte, and with bytes changed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from msgspec import Struct

from core.protocol.apis import APIS, Api
from core.protocol.primitives import ProtocolError
from core.protocol.schema import fields_of
from tests.core.protocol.samples import SAMPLES, Maker, Side, sides

EVERY_API = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)


@EVERY_API
def test_a_message_comes_back_as_it_went(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        for side in sides(api):
            for seed in range(SAMPLES):
                message = Maker(seed).message(side.type, version)
                raw = side.encode(api.key, version, message)
                read = side.decode(api.key, version, raw)
                assert read == message
                assert side.encode(api.key, version, read) == raw


@EVERY_API
def test_a_message_of_defaults_can_be_written_in_every_version(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        for side in sides(api):
            raw = side.encode(api.key, version, side.type())
            assert side.decode(api.key, version, raw) == side.type()


@EVERY_API
def test_a_message_cut_anywhere_is_refused(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        for side in sides(api):
            raw = side.encode(api.key, version, Maker(version, longest=128).message(side.type, version))
            for end in range(len(raw)):
                with pytest.raises(ProtocolError):
                    side.decode(api.key, version, raw[:end])


@EVERY_API
def test_a_changed_message_is_read_or_refused_and_nothing_else(api: Api) -> None:
    random = Random(api.key)
    for version in range(api.min_version, api.max_version + 1):
        for side in sides(api):
            raw = side.encode(api.key, version, Maker(version, longest=128).message(side.type, version))
            for _ in range(20 * SAMPLES):
                changed = bytearray(raw)
                for _ in range(random.choice((1, 1, 2, 5))):
                    if changed:
                        changed[random.randrange(len(changed))] = random.choice((0, 1, 127, 128, 255))
                _read_again(api, version, side, bytes(changed))


def _read_again(api: Api, version: int, side: Side, raw: bytes) -> None:
    try:
        message = side.decode(api.key, version, raw)
    except ProtocolError as error:
        assert str(error).startswith("decode ")
        return
    again = side.decode(api.key, version, side.encode(api.key, version, message))
    assert repr(again) == repr(message) or "memory" in repr(message)  # nan is not nan, views have addresses


def test_a_default_of_null_stands_only_where_null_may_be_written() -> None:
    for api in APIS.values():
        for side in sides(api):
            _check(side.type)


def _check(message: type[Struct]) -> None:
    for field in fields_of(message):
        first, last = field.versions
        assert 0 <= first <= last
        if field.default is None:
            assert field.nullable.first <= first <= field.nullable.last, f"{message.__name__}.{field.name}"
        if field.struct is not None:
            _check(field.struct)


def test_a_message_reports_no_error_and_no_throttling_unless_told() -> None:
    for api in APIS.values():
        assert [name for name, default in _verdicts(api.response_type) if default != 0] == []


def _verdicts(message: type[Struct]) -> Iterator[tuple[str, object]]:
    for field in fields_of(message):
        if field.name.endswith("error_code") or field.name == "throttle_time_ms":
            yield f"{message.__name__}.{field.name}", field.default
        if field.struct is not None:
            yield from _verdicts(field.struct)


def test_the_docstring_of_each_message_file_names_key_and_versions() -> None:
    for api in APIS.values():
        text = __import__(api.request_type.__module__, fromlist=["_"]).__doc__
        assert f"{api.name} (key {api.key}): " in text
        several = f"ersions {api.min_version}–{api.max_version},"
        span = several if api.max_version > api.min_version else f"ersion {api.max_version},"
        assert span in text, api.name
        flexible = f"flexible from {api.flexible_from}" if api.flexible_from < 100 else "never flexible"
        assert flexible in text, api.name
