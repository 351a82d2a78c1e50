"""core.kafka07.bases: where segments begin, in two places, either of which may be lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.kafka07.bases import decode_bases, encode_bases, known_magics, read_bases, write_bases
from core.kafka07.index import AddressIndex
from core.log.files import FilePool
from core.log.segment import file_stem

BASES = {0: {0: 0, 100: 900}, 1: {100: 1000}}


def test_what_is_written_is_read() -> None:
    assert encode_bases(BASES) == b"0\n3\n0 0 0\n0 100 900\n1 100 1000\n"
    assert decode_bases(encode_bases(BASES)) == BASES


@pytest.mark.parametrize(
    "data", [b"", b"0\n", b"1\n0\n", b"0\n2\n0 0 0\n", b"0\n1\n0 0\n", b"0\n1\n0 0 -1\n"]
)
def test_a_torn_file_is_told(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_bases(data)


def test_each_magic_keeps_its_lines(tmp_path: Path) -> None:
    write_bases(str(tmp_path), 0, BASES[0])
    write_bases(str(tmp_path), 1, BASES[1])
    assert known_magics(str(tmp_path), ()) == [0, 1]
    assert read_bases(str(tmp_path), {0, 100}, 0) == BASES[0]
    assert read_bases(str(tmp_path), {100}, 0) == {100: 900}


@pytest.mark.parametrize("left", [None, b"rubbish\n"])
def test_a_base_that_the_file_has_lost_is_found_in_the_sidecar(tmp_path: Path, left: bytes | None) -> None:
    index = AddressIndex(FilePool(4), file_stem(str(tmp_path), 100), 1, 100, 1000)
    index.add([index.start])
    index.flush(100)
    if left is not None:
        (tmp_path / "legacy-addresses").write_bytes(left)
    assert read_bases(str(tmp_path), {0, 100}, 1) == {100: 1000}
    assert read_bases(str(tmp_path), {0, 100}, 0) == {}
