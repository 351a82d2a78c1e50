"""Where each segment begins in the byte addresses of Kafka 0.7: one small text file per partition.

    legacy-addresses      version 0, number of lines, then `magic base-offset base-address`

Each sidecar says the same of its own segment (`core.kafka07.index`), so that one of the two may be lost. What
this file is for: the address of the first segment that is left must not depend on those that retention removed.
It is replaced as a whole before they go, and is on the disk before their bytes are given back.
"""

from __future__ import annotations

from collections.abc import Iterable

from core.kafka07.index import MAGICS, read_base, sidecar_path
from core.log import files
from core.log.segment import file_stem

# The file that says that a partition has addresses.
ADDRESSES_FILE = "legacy-addresses"
_VERSION = 0

# Base offset → base address, by magic.
Bases = dict[int, dict[int, int]]


def bases_path(directory: str) -> str:
    """Return the file of the partition in `directory`."""
    return f"{directory}/{ADDRESSES_FILE}"


def encode_bases(bases: Bases) -> bytes:
    """Return the file as text."""
    lines = [
        f"{magic} {offset} {address}"
        for magic, of in sorted(bases.items())
        for offset, address in sorted(of.items())
    ]
    return "\n".join([str(_VERSION), str(len(lines)), *lines, ""]).encode()


def decode_bases(data: bytes) -> Bases:
    """Return what the file says; ValueError if it is torn or not one."""
    lines = data.decode().split("\n")
    if len(lines) < 3 or lines[-1] or int(lines[0]) != _VERSION or int(lines[1]) != len(lines) - 3:
        raise ValueError("not a whole file")
    bases: Bases = {}
    for line in lines[2:-1]:
        magic, offset, address = (int(part) for part in line.split(" "))
        if min(magic, offset, address) < 0:
            raise ValueError("a negative number")
        bases.setdefault(magic, {})[offset] = address
    return bases


def read_bases(directory: str, base_offsets: set[int], magic: int) -> dict[int, int]:
    """Return the base addresses that are known of the segments that begin at `base_offsets`.

    Read the bases from the file, and also from the sidecars if the file lacks the base of the first segment. All
    others can be found from that one. Raises OSError.
    """
    known: dict[int, int] = {}
    data = files.read_whole(bases_path(directory))
    if data is not None:
        try:
            known = decode_bases(data).get(magic, {})
        except ValueError:
            known = {}
    lost = min(base_offsets) not in known
    for base_offset in base_offsets - known.keys() if lost else ():
        found = read_base(sidecar_path(file_stem(directory, base_offset), magic))
        if found is not None and found[:2] == (magic, base_offset):
            known[base_offset] = found[2]
    return {offset: address for offset, address in known.items() if offset in base_offsets}


def known_magics(directory: str, also: Iterable[int]) -> list[int]:
    """Return the magics in the file, and those in `also`. Raises OSError."""
    try:
        return sorted({*decode_bases(files.read_whole(bases_path(directory)) or b""), *also})
    except ValueError:
        return sorted(MAGICS)


def write_bases(directory: str, magic: int, bases: dict[int, int]) -> None:
    """Put what is known of one magic into the file; the other magic's lines stay. Raises OSError."""
    try:
        every = decode_bases(files.read_whole(bases_path(directory)) or b"")
    except ValueError:
        every = {}
    every[magic] = bases
    files.write_whole(bases_path(directory), encode_bases(every), durable=False)
