"""Compiles one version of a message into a flat function that reads it.

    def decode(buffer, position, size, left): … return message, position

Neighbouring fields of a fixed size, the length that follows them and the count of tagged fields are read by
one `unpack_from`. Arrays of structs become loops in the same function. Before a list is filled its count is
compared with the bytes left and with `left`, the number of elements that this message may still hold.

A read past the end raises IndexError or struct.error, a string that is no UTF-8 UnicodeDecodeError; the codec
turns all of them into ProtocolError.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import unpack_from

from msgspec import Struct

from core.protocol import primitives
from core.protocol.encoding import FEW
from core.protocol.frame import MAX_BYTES, MAX_STRING, MAX_TAGS
from core.protocol.schema import Field, Kind, fields_of
from core.protocol.source import FORMATS, Compiled, Part, Source, fixed_size, smallest, span


def compile_decoder(message: type[Struct], version: int, flexible: bool) -> Compiled:
    """The function that reads `message` in this version."""
    return _Decoder(message, version, flexible).compile()


class _Decoder:
    def __init__(self, message: type[Struct], version: int, flexible: bool) -> None:
        self.message, self.version, self.flexible = message, version, flexible
        self.source = Source(
            "def decode(buffer, position, size, left):",
            {
                "ProtocolError": primitives.ProtocolError,
                "long": primitives.rest_of_uvarint,
                "read_uvarint": primitives.read_uvarint,
                "skip_tags": primitives.skip_tags,
                "uuid_of": primitives.uuid_of,
                "unpack_from": unpack_from,
            },
        )
        self.run: list[Part] = []  # still to be read together
        self.readers: dict[str, tuple[str, int]] = {}

    def compile(self) -> Compiled:
        result = self.struct(self.message, "")
        self.source.line(f"return {result}, position")
        return self.source.finish(f"decode {self.message.__name__} v{self.version}")

    # --- runs of fixed size ------------------------------------------------------------------------------

    def fixed(self, format_: str, prefix: str) -> str:
        variable = self.source.new(prefix)
        self.run.append(Part(format_, variable, self.source.path))
        return variable

    def flush(self) -> None:
        """Reads the run."""
        if self.run:
            with self.source.field(span(self.run)):
                self.read_run()
            self.run = []

    def read_run(self) -> None:
        line = self.source.line
        formats = ">" + "".join(part.format for part in self.run)
        variables = ", ".join(part.expression for part in self.run)
        if formats == ">B":
            line(f"{variables} = buffer[position]")
            line("position += 1")
            return
        if formats not in self.readers:
            reader = Layout(formats)
            self.readers[formats] = self.source.constant("u", reader.unpack_from), reader.size
        name, size = self.readers[formats]
        line(f"{variables}, = {name}(buffer, position)")
        line(f"position += {size}")

    # --- values ------------------------------------------------------------------------------------------

    def value(
        self, kind: Kind, element: Kind | None, struct: type[Struct] | None, nullable: bool, path: str
    ) -> str:
        """Writes the code that reads one value; the expression that then holds it."""
        with self.source.field(path):
            if kind is Kind.UUID:
                return f"uuid_of({self.fixed(FORMATS[kind], 'v')})"
            if kind in FORMATS:
                return self.fixed(FORMATS[kind], "v")
            if kind is Kind.STRUCT:
                assert struct is not None
                return self.nullable_struct(struct, path) if nullable else self.struct(struct, path)
            if kind is Kind.ARRAY:
                assert element is not None
                return self.array(element, struct, nullable, path)
            return self.bytes_like(kind, nullable)

    def length(self, compact_bias: str, format_: str) -> str:
        """Reads a length or count into a variable: −1 is null, what is below is refused."""
        if self.flexible:
            count = self.fixed("B", "n")
            self.flush()
            with self.source.block(f"if {count} > 127:"):
                self.source.line(f"{count}, position = long(buffer, position, {count})")
            self.source.line(f"{count} -= 1")
            return count
        count = self.fixed(format_, "n")
        self.flush()
        return count

    def null_branch(self, count: str, value: str, nullable: bool) -> None:
        with self.source.block(f"if {count} < 0:"):
            if nullable:
                if not self.flexible:
                    with self.source.block(f"if {count} != -1:"):
                        self.source.line(f'raise ProtocolError(f"length {{{count}}}")')
                self.source.line(f"{value} = None")
            else:
                self.source.line(f'raise ProtocolError(f"length {{{count}}}, may not be null")')

    def bytes_like(self, kind: Kind, nullable: bool) -> str:
        source = self.source
        count = self.length("", "h" if kind is Kind.STRING else "i")
        value, end = source.new("v"), source.new("e")
        self.null_branch(count, value, nullable)
        with source.block("else:"):
            source.line(f"{end} = position + {count}")
            with source.block(f"if {end} > size:"):
                source.line(f'raise ProtocolError(f"length {{{count}}}, {{size - position}} bytes left")')
            if kind is Kind.STRING:
                if self.flexible:
                    with source.block(f"if {count} > {MAX_STRING}:"):
                        source.line(f'raise ProtocolError(f"a string of {{{count}}} bytes")')
                source.line(f'{value} = str(buffer[position:{end}], "utf-8")')
            elif kind is Kind.BYTES:
                with source.block(f"if {count} > {MAX_BYTES}:"):
                    source.line(f'raise ProtocolError(f"{{{count}}} bytes in one field")')
                source.line(f"{value} = bytes(buffer[position:{end}])")
            else:
                source.line(f"{value} = buffer[position:{end}]")
            source.line(f"position = {end}")
        return value

    def array(self, element: Kind, struct: type[Struct] | None, nullable: bool, path: str) -> str:
        source = self.source
        count = self.length("", "i")
        value = source.new("v")
        self.null_branch(count, value, nullable)
        with source.block("else:"):
            least = max(1, smallest(element, struct, self.version, self.flexible))
            product = count if least == 1 else f"{count} * {least}"
            with source.block(f"if {product} > size - position:"):
                source.line(f'raise ProtocolError(f"{{{count}}} elements, {{size - position}} bytes left")')
            source.line(f"left -= {count}")
            with source.block("if left < 0:"):
                source.line(f'raise ProtocolError(f"{{{count}}} elements, too many in one message")')
            if element in FORMATS and element is not Kind.UUID:
                self.numbers(element, value, count)
            else:
                self.elements(element, struct, value, count, path)
        return value

    def elements(self, element: Kind, struct: type[Struct] | None, value: str, count: str, path: str) -> None:
        """An array of anything else, whose count was checked: a loop."""
        source = self.source
        index = source.new("i")
        source.line(f"{value} = []")
        with source.block(f"for {index} in range({count}):"):
            item = self.value(element, None, struct, False, f"{path}[{{{index}}}]")
            self.flush()
            source.line(f"{value}.append({item})")

    def numbers(self, element: Kind, value: str, count: str) -> None:
        """An array of numbers, whose count was checked."""
        few = tuple(Layout(f">{n}{FORMATS[element]}").unpack_from for n in range(FEW))
        with self.source.block(f"if {count} < {FEW}:"):
            self.source.line(f"{value} = list({self.source.constant('u', few)}[{count}](buffer, position))")
        with self.source.block("else:"):
            format_ = f'f">{{{count}}}{FORMATS[element]}"'
            self.source.line(f"{value} = list(unpack_from({format_}, buffer, position))")
        self.source.line(f"position += {count} * {fixed_size(element)}")

    # --- structs -----------------------------------------------------------------------------------------

    def nullable_struct(self, struct: type[Struct], path: str) -> str:
        present = self.fixed("b", "n")
        self.flush()
        value = self.source.new("v")
        with self.source.block(f"if {present} < 0:"):
            self.source.line(f"{value} = None")
        with self.source.block("else:"):
            self.source.line(f"{value} = {self.struct(struct, path)}")
        return value

    def struct(self, struct: type[Struct], path: str) -> str:
        """Writes the code that reads the fields; the expression that makes the message of them."""
        prefix = f"{path}." if path else ""
        values: list[str] = []
        tagged: list[tuple[Field, str, str]] = []
        for field in fields_of(struct):
            if self.version not in field.versions:
                values.append(self.default(field))
            elif field.tag is None:
                nullable = self.version in field.nullable
                values.append(
                    self.value(field.kind, field.element, field.struct, nullable, prefix + field.name)
                )
            else:
                variable = self.source.new("v")
                tagged.append((field, variable, prefix + field.name))
                values.append(variable)
        if self.flexible:
            with self.source.field(f"{prefix}tags"):
                self.tags(tagged)
        else:
            self.flush()
        return f"{self.source.constant('M', struct)}({', '.join(values)})"

    def default(self, field: Field) -> str:
        if isinstance(field.default, list):
            return "[]"
        if field.default is None or isinstance(field.default, int | str):
            return repr(field.default)
        return self.source.constant("D", field.default)

    def tags(self, tagged: list[tuple[Field, str, str]]) -> None:
        source = self.source
        count = self.fixed("B", "n")
        self.flush()
        for field, variable, _ in tagged:
            source.line(f"{variable} = {self.default(field)}")
        with source.block(f"if {count}:"):
            with source.block(f"if {count} > 127:"):
                source.line(f"{count}, position = long(buffer, position, {count})")
            source.line(f"left -= {count}")
            with source.block(f"if left < 0 or {count} > {MAX_TAGS}:"):
                source.line(f'raise ProtocolError(f"{{{count}}} tagged fields")')
            if not tagged:
                source.line(f"position = skip_tags(buffer, position, size, {count})")
                return
            tag, end = source.new("t"), source.new("e")
            with source.block(f"for _ in range({count}):"):
                source.line(f"{tag}, position = read_uvarint(buffer, position)")
                source.line(f"{end}, position = read_uvarint(buffer, position)")
                source.line(f"{end} += position")
                with source.block(f"if {end} > size:"):
                    source.line('raise ProtocolError("a tagged field longer than its frame")')
                word = "if"
                for field, variable, path in tagged:
                    with source.block(f"{word} {tag} == {field.tag}:"), source.field(path):
                        self.tagged_value(field, variable, end, path)
                    word = "elif"
                with source.block("else:"):
                    source.line(f"position = {end}")

    def tagged_value(self, field: Field, variable: str, end: str, path: str) -> None:
        nullable = self.version in field.nullable
        value = self.value(field.kind, field.element, field.struct, nullable, path)
        self.flush()
        self.source.line(f"{variable} = {value}")
        with self.source.block(f"if position != {end}:"):
            self.source.line('raise ProtocolError("a tagged field whose size is wrong")')
