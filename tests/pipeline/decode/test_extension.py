"""The C extension: it touches nothing outside its buffers, and the package works without it."""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from subprocess import run

import numpy as np
import pytest

from core.records.batch import build_batch
from core.records.header import HEADER_SIZE
from core.records.record import NewRecord
from pipeline.decode import _decoder, native
from pipeline.decode.decoder import decoder, plain_batches
from tests.broker_process import ROOT

RECORDS = [NewRecord(key=b"k", value=b"value", headers=(("name", b"1"), ("other", None)), timestamp=5)] * 3
SIZES = {
    "offsets": (np.int64, 3), "times": (np.int64, 3), "time_types": (np.int32, 3),
    "key_ends": (np.int32, 4), "keys": (np.uint8, 3), "key_valid": (np.uint8, 3),
    "value_ends": (np.int32, 4), "values": (np.uint8, 15), "value_valid": (np.uint8, 3),
    "header_ends": (np.int32, 4),
    "name_ends": (np.int32, 7), "names": (np.uint8, 27), "name_valid": (np.uint8, 6),
    "item_ends": (np.int32, 7), "items": (np.uint8, 3), "item_valid": (np.uint8, 6),
}  # fmt: skip


def decode(end: int | None = None, short: str = "", count: int = 3) -> tuple[bool, dict[str, np.ndarray]]:
    """Decode three records into buffers of just the right size; `short` has space for one value less."""
    data = bytes(build_batch(RECORDS, now_ms=0))
    out = {name: np.zeros(size - (name == short), kind) for name, (kind, size) in SIZES.items()}
    table = np.array([[HEADER_SIZE, end or len(data), 0, 2, 5, native.NO_APPEND_TIME, count]], np.int64)
    wanted, used = np.array([0, 10, 1, 1, 1], np.int64), np.zeros(native.USED_FIELDS, np.int64)
    return _decoder.decode(data, table, wanted, *out.values(), used), {**out, "used": used}


def test_buffers_of_the_right_size_are_filled() -> None:
    done, out = decode()
    assert done
    assert out["used"].tolist() == [3, 3, 15, 6, 27, 3, 0, 0, 3]
    assert bytes(out["names"]) == b"nameother" * 3
    assert out["item_valid"].tolist() == [1, 0] * 3


@pytest.mark.parametrize("name", SIZES)
def test_a_buffer_that_is_too_small_is_not_overrun(name: str) -> None:
    assert decode(short=name)[0] is False


@pytest.mark.parametrize("count", [-1, 0, 2, 4, 2**62])
def test_a_wrong_number_of_records_is_malformed(count: int) -> None:
    assert decode(count=count)[0] is False


@pytest.mark.parametrize("end", [-5, 60, 62, 10**9, 2**63 - 1])
def test_bounds_outside_the_data_are_malformed(end: int) -> None:
    assert decode(end=end)[0] is False


def test_arguments_of_a_wrong_kind_are_refused() -> None:
    with pytest.raises(TypeError, match="takes 20 buffers"):
        _decoder.decode(b"")  # type: ignore[call-arg]
    numbers = np.zeros(5, np.int64)
    columns = [np.zeros(8, np.int64)] * 16
    with pytest.raises(ValueError, match="`used` 9"):
        _decoder.decode(b"", numbers, numbers, *columns, numbers)
    with pytest.raises((TypeError, BufferError)):
        _decoder.decode(b"", numbers, numbers, b"read-only", *columns[1:], np.zeros(9, np.int64))


@pytest.fixture
def fresh_choice() -> Iterator[None]:
    """Let `decoder` choose again, before and after the test."""
    decoder.cache_clear()
    yield
    decoder.cache_clear()


@pytest.mark.usefixtures("fresh_choice")
def test_without_the_extension_the_plain_decoder_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decoder() is native.native_batches
    decoder.cache_clear()
    monkeypatch.setitem(sys.modules, "pipeline.decode._decoder", None)
    monkeypatch.delitem(sys.modules, "pipeline.decode.native")
    monkeypatch.delattr("pipeline.decode._decoder")
    monkeypatch.delattr("pipeline.decode.native")
    assert decoder() is plain_batches


def test_the_package_works_out_of_a_zip_file_as_spark_submit_sends_it(tmp_path: Path) -> None:
    archive = tmp_path / "sluice.zip"
    with zipfile.ZipFile(archive, "w") as target:
        for package in ("core", "pipeline"):
            for file in (ROOT / package).rglob("*.py"):
                target.write(file, file.relative_to(ROOT))
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import pipeline.decode.decoder as d; "
        "print(d.decoder().__name__, 'sluice.zip' in d.__file__)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = run(
        [sys.executable, "-c", program],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "plain_batches True\n"
