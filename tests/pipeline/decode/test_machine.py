"""How the compiled decoder comes into a process: from a file that is trusted, else from numba, else not at all."""

from __future__ import annotations

import ctypes
import sys
import zipfile
from pathlib import Path
from subprocess import run

import numpy as np
import pytest

from pipeline.decode import elf, layout, machine
from tests.broker_process import ROOT

# 150 records of a batch need not be read to see that it works: an empty batch is, and one that lies is not.
EMPTY, LYING = 0, 3


def call(kernel: machine.Kernel, count: int) -> int:
    """The kernel over a batch without bytes that says it holds `count` records."""
    data, used = np.zeros(16, np.uint8), np.zeros(layout.USED_FIELDS, np.int64)
    table = np.array([[0, 0, 0, 0, 0, layout.NO_APPEND_TIME, count]], np.int64)
    others = [np.zeros(16, np.int64) for _ in layout.POINTERS[2:-1]]
    return kernel(data.ctypes.data, table.ctypes.data, 1, *(one.ctypes.data for one in (*others, used)))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own."""
    monkeypatch.setenv(machine.CACHE, str(tmp_path))
    return tmp_path


def objects(cache: Path) -> list[Path]:
    """The object files in the cache."""
    return sorted(cache.glob("*/*.o"))


def test_the_decoder_is_compiled_once_by_another_process_and_loaded_without_numba(cache: Path) -> None:
    program = (
        "import sys; from pipeline.decode.machine import kernel; made = kernel(); "
        "print(made is not None, 'numba' in sys.modules)"
    )
    for _ in range(2):
        out = run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        assert out == "True False\n"
        (file,) = objects(cache)
        written = file.stat().st_mtime_ns
    assert objects(cache)[0].stat().st_mtime_ns == written
    kernel = machine.kernel()
    assert kernel is not None
    assert (call(kernel, EMPTY), call(kernel, LYING)) == (layout.DONE, layout.MALFORMED)


@pytest.mark.parametrize("hurdle", ["other processor", "no place", "damaged object", "cannot map"])
def test_where_the_object_cannot_be_had_numba_compiles_in_the_process(
    cache: Path, monkeypatch: pytest.MonkeyPatch, hurdle: str
) -> None:
    if hurdle == "other processor":
        monkeypatch.setattr("platform.machine", lambda: "riscv64")
    elif hurdle == "no place":
        monkeypatch.setattr(machine, "_is_own", lambda *_: False)
    elif hurdle == "damaged object":
        monkeypatch.setattr(machine, "_compile", lambda file: file.write_bytes(b"\x7fELF"))
    else:

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError("mapping code is not permitted")

        monkeypatch.setattr("mmap.mmap", refuse)
    kernel = machine.kernel()
    assert kernel is not None
    assert isinstance(kernel, ctypes._CFuncPtr)  # type: ignore[attr-defined]
    assert (call(kernel, EMPTY), call(kernel, LYING)) == (layout.DONE, layout.MALFORMED)


def test_a_file_that_others_may_write_is_compiled_anew(cache: Path) -> None:
    machine.kernel()
    (file,) = objects(cache)
    good = file.read_bytes()
    file.write_bytes(b"not code")
    file.chmod(0o666)
    assert machine.kernel() is not None
    assert file.read_bytes() == good
    assert file.stat().st_mode & 0o777 == 0o600


def test_without_numba_there_is_no_compiled_decoder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_SOURCES", ())
    monkeypatch.setattr(machine, "_trusted", lambda _: False)

    def fail(_: Path) -> None:
        raise OSError("no compiler")

    monkeypatch.setattr(machine, "_compile", fail)
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "pipeline.decode.kernels", raising=False)
    assert machine.kernel() is None


def test_it_works_out_of_a_zip_file_as_spark_submit_sends_it(cache: Path, tmp_path: Path) -> None:
    archive = tmp_path / "sluice.zip"
    with zipfile.ZipFile(archive, "w") as target:
        for room in ("core", "pipeline"):
            for file in (ROOT / room).rglob("*.py"):
                target.write(file, file.relative_to(ROOT))
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import pipeline.decode.machine as m; "
        "print(m.kernel() is not None, 'numba' in sys.modules, 'sluice.zip' in m.__file__)"
    )
    out = run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert out == "True False True\n"


@pytest.fixture(scope="module")
def object_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A good object."""
    file = tmp_path_factory.mktemp("object") / "decoder.o"
    machine._compile(file)
    return file.read_bytes()


def test_an_object_that_is_cut_short_or_not_for_this_machine_is_refused(object_file: bytes) -> None:
    for size in (0, 6, 40, 64, 200, len(object_file) // 2, len(object_file) - 70):
        with pytest.raises(ValueError):
            elf.read(object_file[:size])
    other = bytearray(object_file)
    other[18] = 183
    with pytest.raises(ValueError, match="no relocatable object for x86-64: type 1, machine 183"):
        elf.read(bytes(other))


def test_linking_writes_addresses_and_refuses_names_it_does_not_have(object_file: bytes) -> None:
    code = elf.read(object_file)
    assert {one.name for one in code.references} <= {"", "memcpy"}
    image = elf.link(code, 0x10000, {"memcpy": 0xABCDEF})
    assert len(image) == len(code.image) % 4096 + len(code.image)
    for one in code.references:
        found = int.from_bytes(image[one.at : one.at + 8], "little")
        assert found == (0xABCDEF if one.name else 0x10000 + one.target)
    with pytest.raises(ValueError, match="the object needs memcpy"):
        elf.link(code, 0x10000, {})
