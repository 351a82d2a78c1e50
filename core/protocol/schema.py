"""How a message is written down: a msgspec Struct whose annotations carry the facts of the wire.

    class FetchPartition(Message):
        partition: Annotated[Int32, F("0+")] = 0
        current_leader_epoch: Annotated[Int32, F("9+")] = -1
        topics: Annotated[list[FetchTopic] | None, F("0+", nullable="1+")] = []
        cluster_id: Annotated[str | None, F("12+", nullable="12+", tag=0)] = None

The order of the fields is their order on the wire. What a version lacks is filled with the default, so a
handler never asks for the version. The type says how a value is written: `str`, `bytes`, `bool`, `float`,
`UUID`, another Message, a list of these, and one of the aliases below where Python's type says too little.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields as struct_fields

from core.types import FileSlice


class Kind(StrEnum):
    """How a value is written."""

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    FLOAT64 = "float64"
    UUID = "uuid"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"
    STRUCT = "struct"
    ARRAY = "array"


Int8 = Annotated[int, Kind.INT8]
Int16 = Annotated[int, Kind.INT16]
UInt16 = Annotated[int, Kind.UINT16]
Int32 = Annotated[int, Kind.INT32]
UInt32 = Annotated[int, Kind.UINT32]
Int64 = Annotated[int, Kind.INT64]

Piece: TypeAlias = bytes | bytearray | memoryview | FileSlice
"""A stretch of an encoded message: bytes, or where they lie in a file."""

ReceivedRecords = Annotated[memoryview, Kind.RECORDS]
"""Record bytes as they came: a view into the frame, valid as long as the frame is."""

SentRecords = Annotated[Piece | list[Piece], Kind.RECORDS]
"""Record bytes to be sent, by reference: one piece or several in a row. Decoded as a memoryview."""


class Message(Struct, gc=False):
    """A message or a part of one. Messages hold no cycles, so the collector need not look at them."""


class Value(Struct, frozen=True, gc=False):
    """A part of a message that cannot change, so that one object can be the default of many."""


class Versions(NamedTuple):
    """A span of versions, both ends included."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


NEVER = Versions(1, 0)
NEWEST = 32_767


def parse_versions(text: str) -> Versions:
    """`"3"`, `"3-5"`, `"3+"` or `""` (never) as a span."""
    if not text:
        return NEVER
    if text.endswith("+"):
        return Versions(int(text[:-1]), NEWEST)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


@dataclass(frozen=True, slots=True)
class F:
    """The definition of one field: the versions that have it, the versions in which it may be null, and its tag."""

    versions: str
    nullable: str = ""
    tag: int | None = None


class Field(NamedTuple):
    """A field, read from its annotation. `element` is set for arrays, `struct` for (arrays of) messages."""

    name: str
    kind: Kind
    versions: Versions
    nullable: Versions
    tag: int | None
    element: Kind | None
    struct: type[Struct] | None
    default: Any


_PLAIN = {bool: Kind.BOOL, float: Kind.FLOAT64, UUID: Kind.UUID, str: Kind.STRING, bytes: Kind.BYTES}


def _kind_of(hint: Any) -> tuple[Kind, Kind | None, type[Struct] | None]:
    """Kind, kind of the elements, and message class of a type hint without its None."""
    if get_origin(hint) is Annotated:
        return next(mark for mark in hint.__metadata__ if isinstance(mark, Kind)), None, None
    if get_origin(hint) is list:
        element, _, struct = _kind_of(get_args(hint)[0])
        return Kind.ARRAY, element, struct
    if isinstance(hint, type) and issubclass(hint, Struct):
        return Kind.STRUCT, None, hint
    return _PLAIN[hint], None, None


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (choice for choice in get_args(hint) if choice is not NoneType)
    return hint


@cache
def fields_of(message: type[Struct]) -> tuple[Field, ...]:
    """The fields of a message class, in the order of the wire."""
    hints = get_type_hints(message, include_extras=True)
    fields = []
    for field in struct_fields(message):
        inner, *marks = get_args(hints[field.name])
        facts = next(mark for mark in marks if isinstance(mark, F))
        kind = next((mark for mark in marks if isinstance(mark, Kind)), None)
        if kind is None:
            kind, element, struct = _kind_of(_without_none(inner))
        else:  # Annotated[Int32, F(…)] arrives flattened
            element = struct = None
        default = field.default if field.default is not NODEFAULT else field.default_factory()
        fields.append(
            Field(
                field.name,
                kind,
                parse_versions(facts.versions),
                parse_versions(facts.nullable),
                facts.tag,
                element,
                struct,
                default,
            )
        )
    return tuple(fields)
