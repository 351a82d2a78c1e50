"""Compiles one version of a message into a flat function that writes it.

    def encode(m): … return parts

`parts` are bytearrays with record bytes between them, by reference: the bytes for the socket, in this order.
Neighbouring fields of a fixed size are written by one `pack`, together with the length that follows them.
A value that does not fit its field raises struct.error, a wrong type TypeError or AttributeError; the codec
turns them into ProtocolError.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import pack

from msgspec import Struct

from core.protocol import primitives
from core.protocol.schema import Field, Kind, Piece, fields_of
from core.protocol.source import FORMATS, Compiled, Part, Source, span
from core.types import FileSlice

SMALL = 512
"""Record bytes up to this size are copied: a part of its own costs the socket more."""

FEW = 8
"""Arrays of fewer numbers have a `pack` each that is made beforehand: replicas, in-sync replicas, …"""


def compile_encoder(message: type[Struct], version: int, flexible: bool) -> Compiled:
    """The function that writes `message` in this version."""
    return _Encoder(message, version, flexible).compile()


def records_size(records: Piece | list[Piece]) -> int:
    """Bytes of records, wherever they lie."""
    if isinstance(records, FileSlice):
        return records.length
    if isinstance(records, list):
        return sum(records_size(piece) for piece in records)
    return len(records)


def put_records(parts: list[Piece], out: bytearray, records: Piece | list[Piece]) -> bytearray:
    """Adds records after `out`. Returns the bytearray for what follows."""
    if isinstance(records, list):
        for piece in records:
            out = put_records(parts, out, piece)
        return out
    if not isinstance(records, FileSlice) and len(records) <= SMALL:
        out += records
        return out
    parts.append(out)
    parts.append(records)
    return bytearray()


class _Encoder:
    def __init__(self, message: type[Struct], version: int, flexible: bool) -> None:
        self.message, self.version, self.flexible = message, version, flexible
        self.source = Source(
            "def encode(m):",
            {
                "ProtocolError": primitives.ProtocolError,
                "uvarint": primitives.uvarint,
                "pack": pack,
                "records_size": records_size,
                "put_records": put_records,
                "FileSlice": FileSlice,
            },
        )
        self.out = "out"
        self.run: list[Part] = []  # still to be written together
        self.writers: dict[str, str] = {}

    def compile(self) -> Compiled:
        self.source.line("parts = []")
        self.source.line("out = bytearray()")
        self.struct(self.message, "m", "")
        self.flush()
        self.source.line("parts.append(out)")
        self.source.line("return parts")
        return self.source.finish(f"encode {self.message.__name__} v{self.version}")

    # --- runs of fixed size ------------------------------------------------------------------------------

    def part(self, format_: str, expression: str) -> Part:
        return Part(format_, expression, self.source.path)

    def written(self, *more: Part) -> None:
        """Writes the run and `more`, without forgetting the run: for the two branches of an if."""
        run = [*self.run, *more]
        if not run:
            return
        if all(part.constant is not None for part in run):  # empty tag sections, nulls
            self.source.line(f"{self.out} += {b''.join(part.constant or b'' for part in run)!r}")
            return
        if len(run) == 1 and run[0].format == "B":  # a length below 128; `append` costs a third of a `pack`
            self.source.line(f"{self.out}.append({run[0].expression})")
            return
        formats = ">" + "".join(part.format for part in run)
        if formats not in self.writers:
            self.writers[formats] = self.source.constant("p", Layout(formats).pack)
        values = ", ".join(part.expression for part in run if part.expression)
        with self.source.field(span(run)):
            self.source.line(f"{self.out} += {self.writers[formats]}({values})")

    def flush(self) -> None:
        """Writes the run."""
        self.written()
        self.run = []

    # --- values ------------------------------------------------------------------------------------------

    def value(
        self,
        kind: Kind,
        element: Kind | None,
        struct: type[Struct] | None,
        nullable: bool,
        expression: str,
        path: str,
    ) -> None:
        """Writes the code that writes one value."""
        with self.source.field(path):
            if kind is Kind.UUID:
                self.run.append(self.part(FORMATS[kind], f"{expression}.bytes"))
            elif kind in FORMATS:
                self.run.append(self.part(FORMATS[kind], expression))
            elif kind is Kind.STRUCT and not nullable:
                assert struct is not None
                self.struct(struct, expression, path)
            else:
                self.flush_before_branch(kind, element, struct, nullable, expression, path)

    def flush_before_branch(
        self,
        kind: Kind,
        element: Kind | None,
        struct: type[Struct] | None,
        nullable: bool,
        expression: str,
        path: str,
    ) -> None:
        """A value whose length is only known at run time, or that may be null."""
        source = self.source
        value = expression
        if "." in expression:
            value = source.new("v")
            source.line(f"{value} = {expression}")
        if kind is Kind.STRUCT:
            assert struct is not None
            with source.block(f"if {value} is None:"):
                self.written(self.part("b", "-1"))
            with source.block("else:"):
                self.written(self.part("b", "1"))
                self.run = []
                self.struct(struct, value, path)
                self.flush()
            return
        if not nullable:
            self.sized(kind, element, struct, value, path)
            self.run = []
            return
        with source.block(f"if {value} is None:"):
            null = "h" if kind is Kind.STRING else "i"
            self.written(self.part("B", "0") if self.flexible else self.part(null, "-1"))
        with source.block("else:"):
            self.sized(kind, element, struct, value, path)
            self.run = []

    def sized(
        self, kind: Kind, element: Kind | None, struct: type[Struct] | None, value: str, path: str
    ) -> None:
        """A length, and what has that length."""
        source = self.source
        if kind is Kind.STRING:
            raw = source.new("s")
            source.line(f"{raw} = {value}.encode()")
            self.length(f"len({raw})", "h")
            source.line(f"{self.out} += {raw}")
        elif kind is Kind.BYTES:
            self.length(f"len({value})", "i")
            source.line(f"{self.out} += {value}")
        elif kind is Kind.RECORDS:
            self.records(value)
        elif element in FORMATS and element is not Kind.UUID:
            self.numbers(FORMATS[element], value)
        else:
            assert element is not None
            self.length(f"len({value})", "i")
            self.run = []
            self.elements(element, struct, value, path)

    def length(self, expression: str, format_: str, widest: int = 1) -> None:
        """Writes the run and a length; as a varint of up to `widest` bytes by the same `pack`."""
        if not self.flexible:
            self.written(self.part(format_, expression))
            return
        count = self.source.new("n")
        self.source.line(f"{count} = {expression} + 1")
        for width in range(1, widest + 1):
            lower = [self.part("B", f"{count} >> {7 * n} & 127 | 128") for n in range(width - 1)]
            last = f"{count} >> {7 * width - 7}" if width > 1 else count
            with self.source.block(f"{'if' if width == 1 else 'elif'} {count} < {1 << 7 * width}:"):
                self.written(*lower, self.part("B", last))
        with self.source.block("else:"):
            self.written()
            self.source.line(f"{self.out} += uvarint({count})")

    def records(self, value: str) -> None:
        """Records: what is small is copied, the rest becomes a part of its own."""
        assert self.out == "out", "records inside a tagged field cannot go by reference"
        source = self.source
        size = source.new("n")
        source.line(f"{size} = {value}.length if type({value}) is FileSlice else records_size({value})")
        self.length(size, "i", widest=3)
        with source.block(f"if {size} > {SMALL} and type({value}) is not list:"):
            source.line("parts.append(out)")
            source.line(f"parts.append({value})")
            source.line("out = bytearray()")
        with source.block("else:"):
            source.line(f"out = put_records(parts, out, {value})")

    def numbers(self, format_: str, value: str) -> None:
        """The run, a count and that many numbers: by one `pack` when there are few of them."""
        source = self.source
        count = source.new("n")
        source.line(f"{count} = len({value})")
        before = ">" + "".join(part.format for part in self.run) + ("B" if self.flexible else "i")
        few = source.constant("p", tuple(Layout(f"{before}{n}{format_}").pack for n in range(FEW)))
        told = f"{count} + 1" if self.flexible else count
        values = ", ".join([*(part.expression for part in self.run if part.expression), told])
        with source.block(f"if {count} < {FEW}:"):
            source.line(f"{self.out} += {few}[{count}]({values}, *{value})")
        with source.block("else:"):
            self.length(count, "i")
            source.line(f'{self.out} += pack(f">{{{count}}}{format_}", *{value})')

    def elements(self, element: Kind, struct: type[Struct] | None, value: str, path: str) -> None:
        item = self.source.new("e")
        with self.source.block(f"for {item} in {value}:"):
            self.value(element, None, struct, False, item, f"{path}[]")
            self.flush()

    # --- structs -----------------------------------------------------------------------------------------

    def struct(self, struct: type[Struct], expression: str, path: str) -> None:
        prefix = f"{path}." if path else ""
        if "." in expression:
            name = self.source.new("m")
            self.source.line(f"{name} = {expression}")
            expression = name
        tagged: list[Field] = []
        for field in fields_of(struct):
            if self.version not in field.versions:
                continue
            if field.tag is not None:
                tagged.append(field)
                continue
            nullable = self.version in field.nullable
            self.value(
                field.kind,
                field.element,
                field.struct,
                nullable,
                f"{expression}.{field.name}",
                prefix + field.name,
            )
        if self.flexible:
            self.tags(sorted(tagged, key=lambda field: field.tag or 0), expression, prefix)

    def tags(self, tagged: list[Field], expression: str, prefix: str) -> None:
        """The tag section: only what differs from its default, in the order of the tags."""
        if not tagged:
            self.run.append(self.part("x", ""))
            return
        source = self.source
        defaults = {field.name: source.constant("D", field.default) for field in tagged}
        usual = " and ".join(
            f"({expression}.{name} is {default} or {expression}.{name} == {default})"
            for name, default in defaults.items()
        )
        with source.block(f"if {usual}:"):
            self.written(self.part("x", ""))
        with source.block("else:"):
            self.flush()
            outer, section, count = self.out, source.new("o"), source.new("n")
            source.line(f"{section} = bytearray()")
            source.line(f"{count} = 0")
            for field in tagged:
                with (
                    source.block(f"if {expression}.{field.name} != {defaults[field.name]}:"),
                    source.field(prefix + field.name),
                ):
                    self.tagged_value(field, section, count, f"{expression}.{field.name}", prefix)
            self.out = outer
            source.line(f"{outer} += uvarint({count})")
            source.line(f"{outer} += {section}")

    def tagged_value(self, field: Field, section: str, count: str, expression: str, prefix: str) -> None:
        source = self.source
        self.out = source.new("o")
        source.line(f"{self.out} = bytearray()")
        nullable = self.version in field.nullable
        self.value(field.kind, field.element, field.struct, nullable, expression, prefix + field.name)
        self.flush()
        source.line(f"{count} += 1")
        source.line(f"{section} += uvarint({field.tag})")
        source.line(f"{section} += uvarint(len({self.out}))")
        source.line(f"{section} += {self.out}")
