"""A function that is written by the program: its lines, what they belong to, and the names they may use.

Each line remembers the path of the field it handles (`topics[{i1}].partitions[{i2}].index`). When the
function fails, the line number of the traceback gives that path and its local variables the indices; so
the fast code carries no bookkeeping for errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import calcsize, pack
from types import FunctionType, TracebackType
from typing import Any, NamedTuple

from msgspec import Struct

from core.protocol.schema import Kind, fields_of

FORMATS = {
    Kind.BOOL: "?",
    Kind.INT8: "b",
    Kind.INT16: "h",
    Kind.UINT16: "H",
    Kind.INT32: "i",
    Kind.UINT32: "I",
    Kind.INT64: "q",
    Kind.FLOAT64: "d",
    Kind.UUID: "16s",
}
"""The kinds of a fixed size, as characters of `struct`."""


def fixed_size(kind: Kind) -> int | None:
    """Bytes of a value of this kind, None when they vary."""
    return calcsize(">" + FORMATS[kind]) if kind in FORMATS else None


def smallest(kind: Kind, message: type[Struct] | None, version: int, flexible: bool) -> int:
    """The fewest bytes that a value can take: what bounds a count by the bytes that are left."""
    size = fixed_size(kind)
    if size is not None:
        return size
    if kind is Kind.STRUCT:
        assert message is not None
        fields = [field for field in fields_of(message) if version in field.versions]
        return int(flexible) + sum(
            1
            if field.kind is Kind.STRUCT and version in field.nullable
            else smallest(field.kind, field.struct, version, flexible)
            for field in fields
            if field.tag is None
        )
    if flexible:
        return 1
    return 2 if kind is Kind.STRING else 4


class Part(NamedTuple):
    """A value of fixed size that waits to be read or written together with its neighbors.

    `expression` is Python code for the value; empty for a zero byte.
    """

    format: str
    expression: str
    path: str

    @property
    def constant(self) -> bytes | None:
        """The bytes of the value if the code is a number or empty, otherwise None."""
        if not self.expression:
            return b"\0"
        if self.expression.lstrip("-").isdigit():
            return pack(f">{self.format}", int(self.expression))
        return None


def span(run: list[Part]) -> str:
    """Which fields a run is: the first and the last."""
    first, last = run[0].path, run[-1].path
    return first if first == last else f"{first} … {last}"


class Source:
    """Lines of one function, being written."""

    def __init__(self, signature: str, names: dict[str, Any]) -> None:
        self.names = names
        self._lines = [signature]
        self._paths = [""]
        self._depth = 1
        self._count = 0
        self.path = ""

    def line(self, text: str) -> None:
        """Adds a line at the present depth, for the field `self.path`."""
        self._lines.append("    " * self._depth + text)
        self._paths.append(self.path)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Everything added inside is indented below `head`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def field(self, path: str) -> Iterator[None]:
        """Everything added inside belongs to the field `path`."""
        before, self.path = self.path, path
        yield
        self.path = before

    def new(self, prefix: str) -> str:
        """A variable name that is not used yet."""
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, prefix: str, value: object) -> str:
        """A name by which the function can use `value`."""
        name = self.new(prefix)
        self.names[name] = value
        return name

    def finish(self, name: str) -> Compiled:
        """The function."""
        text = "\n".join(self._lines) + "\n"
        exec(compile(text, f"<{name}>", "exec"), self.names)
        function = self.names[self._lines[0].split("(")[0].removeprefix("def ")]
        return Compiled(function, name, text, tuple(self._paths))


class Compiled:
    """A function made of Source; `run` is the function itself."""

    __slots__ = ("_paths", "name", "run", "text")

    def __init__(self, run: FunctionType, name: str, text: str, paths: tuple[str, ...]) -> None:
        self.run: Callable[..., Any] = run
        self.name = name
        self.text = text
        self._paths = paths

    def where(self, traceback: TracebackType | None) -> str:
        """Which field was being handled when the function raised."""
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == f"<{self.name}>":
                local = traceback.tb_frame.f_locals
                indices = {key: value for key, value in local.items() if key.startswith("i")}
                return self._paths[traceback.tb_lineno - 1].format_map(_Indices(indices))
            traceback = traceback.tb_next
        return ""


class _Indices(dict[str, object]):
    """Indices by variable; a loop that has not begun shows as nothing."""

    def __missing__(self, key: str) -> str:
        return ""
