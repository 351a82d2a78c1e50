"""Just so much of ELF as it takes to load one object file that LLVM has written for x86-64.

LLVM's code for numba is of the large code model: whatever is outside a function is an absolute address of 64 bits,
left open as a relocation R_X86_64_64 (System V ABI, AMD64 supplement, 4.4). So linking is writing addresses. An
object with anything else in it is refused; the caller has another way.

    header    64 bytes: where the section headers are, how many, which one holds their names
    section   64 bytes: name, type, flags, address, offset, size, link, info, alignment, size of an entry
    symbol    24 bytes: name, info, other, section, value, size
    rela      24 bytes: offset, info (symbol and kind), addend
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError  # noqa: N812 (a class, whatever its name)
from typing import NamedTuple

MACHINE = "x86_64"
_MAGIC = b"\x7fELF\x02\x01\x01"
_RELOCATABLE, _X86_64 = 1, 62
_HEADER = Struct("<16xHHIQQQIHHHHHH")
_SECTION = Struct("<IIQQQQIIQQ")
_SYMBOL = Struct("<IBBHQQ")
_RELA = Struct("<QQq")
_ADDRESS = Struct("<Q")
_SYMBOLS, _RELOCATIONS, _EXECUTABLE, _ALLOCATED = 2, 4, 4, 2
_BITS, _NO_BITS = 1, 8
_R_64 = 1
_PAGE = 4096
_WRAPPER = "cfunc."


class _Section(NamedTuple):
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int


class Reference(NamedTuple):
    """An address to be written: where in the image; of a place in the image, or of a name outside of it."""

    at: int
    target: int
    name: str = ""


class Code(NamedTuple):
    """What is to be mapped, where the function begins in it, and which addresses are open."""

    image: bytes
    entry: int
    references: tuple[Reference, ...]


def read(data: bytes) -> Code:
    """The code of numba's C function in an object file. Raises ValueError for what is not understood.

    The function proper is taken, not the wrapper around it, which talks to Python.
    """
    try:
        return _Object(data).code()
    except (IndexError, KeyError, UnicodeDecodeError, OverflowError, StructError) as error:
        raise ValueError(f"the object file is malformed: {error!r}") from None


def link(code: Code, base: int, outside: Mapping[str, int]) -> bytes:
    """The image with its open addresses, for where it will lie. Raises ValueError for a name that is not given."""
    image = bytearray(code.image)
    for one in code.references:
        if one.name and one.name not in outside:
            raise ValueError(f"the object needs {one.name}")
        start = outside[one.name] if one.name else base
        _ADDRESS.pack_into(image, one.at, start + one.target)
    return bytes(image)


class _Object:
    def __init__(self, data: bytes) -> None:
        if data[:7] != _MAGIC:
            raise ValueError("no little-endian ELF object of 64 bits")
        self._data = data
        kind, machine, _, _, _, at, _, _, _, _, size, count, _ = _HEADER.unpack_from(data)
        if (kind, machine, size) != (_RELOCATABLE, _X86_64, _SECTION.size):
            raise ValueError(f"no relocatable object for x86-64: type {kind}, machine {machine}")
        self._sections = []
        for number in range(count):
            fields = _SECTION.unpack_from(data, at + number * size)
            self._sections.append(_Section(fields[1], fields[2], *fields[4:8]))
        (self._table,) = [one for one in self._sections if one.kind == _SYMBOLS]
        self._names = self._sections[self._table.link]

    def code(self) -> Code:
        """See `read`."""
        (text,) = [n for n, one in enumerate(self._sections) if one.flags & _EXECUTABLE and one.size]
        section = self._sections[text]
        symbols = [self._symbol(number) for number in range(self._table.size // _SYMBOL.size)]
        wrappers = [one for one in symbols if one[0].startswith(_WRAPPER) and one[1] == text]
        ((wrapper, _, wrapper_at, wrapper_size),) = wrappers
        (entry,) = [one[2] for one in symbols if one[0] == wrapper.removeprefix(_WRAPPER) and one[1] == text]
        references = []
        for at, symbol, kind, addend in self._relocations(text):
            if wrapper_at <= at < wrapper_at + wrapper_size:
                continue
            name, home, value, _ = symbols[symbol]
            if kind != _R_64 or home not in (0, text):
                raise ValueError(f"a reference of kind {kind} to {name or home} is not understood")
            references.append(Reference(at, value + addend, "" if home else name))
        image = self._data[section.offset : section.offset + section.size]
        return Code(image.ljust(-(-len(image) // _PAGE) * _PAGE, b"\0"), entry, tuple(references))

    def _symbol(self, number: int) -> tuple[str, int, int, int]:
        """Name, section, value, size."""
        name, _, _, section, value, size = _SYMBOL.unpack_from(
            self._data, self._table.offset + number * _SYMBOL.size
        )
        start = self._names.offset + name
        return self._data[start : self._data.index(b"\0", start)].decode(), section, value, size

    def _relocations(self, section: int) -> list[tuple[int, int, int, int]]:
        """(where, number of the symbol, kind, addend) of all that a section leaves open."""
        found = []
        for one in self._sections:
            if one.kind == _RELOCATIONS and one.info == section:
                for number in range(one.size // _RELA.size):
                    at, info, addend = _RELA.unpack_from(self._data, one.offset + number * _RELA.size)
                    found.append((at, info >> 32, info & 0xFFFF_FFFF, addend))
        return found
