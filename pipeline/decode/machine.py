"""The compiled decoder as a function in this process, at the least cost: no numba in workers.

numba with its LLVM takes 100 MB and a second of every process that it is in, and all it does here is to hand out
three kilobytes of machine code. So the code is compiled once on each machine, by a process of its own, and kept in
a file (an ELF object as LLVM writes it, 10 KB); a worker maps it, puts in the few addresses that the object leaves
open, and calls it: 3 ms and no memory to speak of. Where that is not possible (another processor or object format, no
place for the file, no permission to map code) numba compiles it inside the worker, which costs what it costs.

The file is believed only if it, and its directory, belong to this user and to nobody else's writing.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import logging
import mmap
import os
import platform
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pipeline.decode import elf, layout

logger = logging.getLogger(__name__)

Kernel = Callable[..., int]
"""The decoder: addresses as `layout.POINTERS` names them, and the number of batches as the third argument."""

CACHE = "SLUICE_SPARK_CACHE"
COMPILE_SECONDS = 120
_SOURCES = ("kernels.py", "layout.py")
_ARGUMENTS = len(layout.POINTERS) + 1
_COUNT_AT = 2


def kernel() -> Kernel | None:
    """The decoder, from the file, from a compiler process, or from numba in here; None where there is no numba."""
    try:
        file = _cached()
        if not _trusted(file):
            _compile(file)
        return _load(file)
    except (
        OSError,
        ValueError,
        subprocess.SubprocessError,
        importlib.metadata.PackageNotFoundError,
    ) as error:
        logger.info("the decoder is compiled in this process: %s", error)
    try:
        from pipeline.decode.kernels import build
    except ImportError:
        return None
    made = build()
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *_argument_types())(made.address)
    # The code lives as long as what numba made.
    function.keep = made  # type: ignore[attr-defined]
    return function


def _argument_types() -> list[type]:
    return [ctypes.c_int64 if number == _COUNT_AT else ctypes.c_void_p for number in range(_ARGUMENTS)]


def _cached() -> Path:
    """Where the object is kept: named by all that it depends on."""
    if sys.platform != "linux" or platform.machine() != elf.MACHINE:
        raise ValueError(f"there is no loader for {sys.platform} on {platform.machine()}")
    digest = hashlib.sha256()
    for name in _SOURCES:
        # Through the loader: the package may lie in a zip file.
        loader = __spec__.loader
        assert loader is not None
        digest.update(loader.get_data(str(Path(__file__).with_name(name))))  # type: ignore[attr-defined]
    digest.update(importlib.metadata.version("numba").encode())
    return _directory() / f"decoder-{digest.hexdigest()[:20]}.o"


def _directory() -> Path:
    """A directory of this user's own, made if need be. Raises OSError, ValueError."""
    home = os.environ.get(CACHE) or os.environ.get("XDG_CACHE_HOME")
    choices = [Path(home) if home else Path.home() / ".cache", Path(tempfile.gettempdir())]
    for parent in choices:
        directory = parent / f"sluice-spark-{os.getuid()}"
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if _is_own(directory.lstat(), stat.S_IFDIR) and os.access(directory, os.W_OK):
            return directory
    raise ValueError(f"there is no place for compiled code in {' or '.join(map(str, choices))}")


def _trusted(file: Path) -> bool:
    try:
        return _is_own(file.lstat(), stat.S_IFREG)
    except FileNotFoundError:
        return False


def _is_own(found: os.stat_result, kind: int) -> bool:
    """Whether it is of this kind, this user's, and nobody else may write to it."""
    others = stat.S_IWGRP | stat.S_IWOTH
    return stat.S_IFMT(found.st_mode) == kind and found.st_uid == os.getuid() and not found.st_mode & others


def _compile(file: Path) -> None:
    """Have a process of its own write the object; it appears under its name when it is whole."""
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-m", "pipeline.decode.compile", str(file)]
    subprocess.run(
        command,
        env=environment,
        check=True,
        timeout=COMPILE_SECONDS,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )


def _load(file: Path) -> Kernel:
    """The function of an object file, mapped and linked. Raises ValueError for an object that is not understood."""
    code = elf.read(file.read_bytes())
    memory = mmap.mmap(
        -1,
        len(code.image),
        flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
        prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC,
    )
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    copy = ctypes.cast(ctypes.CDLL(None).memcpy, ctypes.c_void_p).value
    assert copy is not None
    memory[:] = elf.link(code, base, {"memcpy": copy})
    # numba's calling convention: the result and the exception go through pointers, the status is returned.
    native = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *_argument_types())(
        base + code.entry
    )
    result, exception = ctypes.c_int64(), ctypes.c_void_p()
    result_at, exception_at = ctypes.addressof(result), ctypes.addressof(exception)

    def call(*arguments: int) -> int:
        # `memory` is named here so that it lives as long as the function does.
        status = native(result_at, exception_at, *arguments)
        return result.value if status == 0 and memory else layout.MALFORMED

    return call
