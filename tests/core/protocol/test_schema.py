"""How annotations become facts."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import pytest

from core.protocol.primitives import NIL
from core.protocol.schema import (
    NEWEST,
    F,
    Int8,
    Int32,
    Kind,
    Message,
    ReceivedRecords,
    SentRecords,
    Value,
    Versions,
    fields_of,
    parse_versions,
)


class Inner(Value, frozen=True):
    number: Annotated[Int8, F("0+")] = -1


class Sample(Message):
    """One field of each kind."""

    text: Annotated[str | None, F("1-3", nullable="2+")] = None
    numbers: Annotated[list[Int32] | None, F("0+", nullable="0+")] = []  # noqa: RUF012
    inner: Annotated[Inner, F("2+", tag=4)] = Inner()
    inners: Annotated[list[Inner], F("0")] = []  # noqa: RUF012
    received: Annotated[ReceivedRecords | None, F("0+", nullable="0+")] = None
    sent: Annotated[SentRecords | None, F("0+", nullable="0+")] = None
    uuid: Annotated[UUID, F("0+")] = NIL
    number: Annotated[Int32, F("0+")] = 7
    flag: Annotated[bool, F("0+")] = False
    real: Annotated[float, F("0+")] = 0.5
    raw: Annotated[bytes, F("0+")] = b""


@pytest.mark.parametrize(
    ("text", "span"),
    [("0+", (0, NEWEST)), ("3", (3, 3)), ("3-5", (3, 5)), ("", (1, 0))],
)
def test_a_span_of_versions_is_read(text: str, span: tuple[int, int]) -> None:
    assert parse_versions(text) == span


def test_a_span_holds_both_its_ends() -> None:
    assert [version in Versions(2, 4) for version in range(6)] == [False, False, True, True, True, False]


def test_the_kind_of_a_field_follows_from_its_type() -> None:
    kinds = {field.name: (field.kind, field.element) for field in fields_of(Sample)}
    assert kinds == {
        "text": (Kind.STRING, None),
        "numbers": (Kind.ARRAY, Kind.INT32),
        "inner": (Kind.STRUCT, None),
        "inners": (Kind.ARRAY, Kind.STRUCT),
        "received": (Kind.RECORDS, None),
        "sent": (Kind.RECORDS, None),
        "uuid": (Kind.UUID, None),
        "number": (Kind.INT32, None),
        "flag": (Kind.BOOL, None),
        "real": (Kind.FLOAT64, None),
        "raw": (Kind.BYTES, None),
    }


def test_facts_and_defaults_are_kept() -> None:
    fields = {field.name: field for field in fields_of(Sample)}
    assert (fields["text"].versions, fields["text"].nullable) == ((1, 3), (2, NEWEST))
    assert fields["inner"].tag == 4 and fields["inner"].struct is Inner and fields["inner"].default == Inner()
    assert fields["numbers"].default == [] and fields["number"].default == 7


def test_two_messages_do_not_share_a_default_list() -> None:
    one, other = Sample(), Sample()
    one.inners.append(Inner())
    assert other.inners == []
