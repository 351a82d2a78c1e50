"""Records and batches for the tests of this package, and a child process that measures its memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from hypothesis import strategies as st

from core.errors import BrokerError
from core.records.batch import build_batch, read_header
from core.records.header import BatchHeader
from core.records.record import NewRecord
from tests.broker_process import ROOT

NOW = 1_700_000_000_000
LIMIT = 1 << 20
CODECS = (0, 1, 2, 3, 4)

timestamps = st.one_of(st.none(), st.just(-1), st.integers(0, 2**41), st.integers(-(2**63), 2**63 - 1))
payloads = st.one_of(st.none(), st.just(b""), st.binary(max_size=300))
headers = st.lists(st.tuples(st.text(max_size=10), payloads), max_size=3).map(tuple)
new_records = st.builds(NewRecord, key=payloads, value=payloads, headers=headers, timestamp=timestamps)
record_lists = st.lists(new_records, min_size=1, max_size=20)


def simple_records(count: int, size: int = 100) -> list[NewRecord]:
    """`count` records with keys k0, k1 … and values of `size` bytes."""
    return [NewRecord(key=b"k%d" % i, value=bytes([i % 251]) * size) for i in range(count)]


def simple_batch(count: int = 10, codec: int = 0) -> tuple[bytearray, BatchHeader]:
    """A batch of `simple_records` and its header."""
    batch = build_batch(simple_records(count), now_ms=NOW, codec=codec)
    return batch, read_header(batch)


def refusal(call: Callable[[], object]) -> BrokerError | None:
    """The BrokerError that `call` raises, None if it returns. Whatever else it raises fails the test."""
    try:
        call()
    except BrokerError as error:
        return error
    return None


def peak_memory_growth(code: str) -> tuple[str, int]:
    """What `code` prints in a process of its own, and by how many bytes its resident memory grew at most.

    A line "---" parts what is set up from what is measured. The peak is that of the kernel (VmHWM), set back
    in between: ru_maxrss would begin with what the process that runs the tests has.
    """
    setup, work = code.split("---\n")
    program = (
        "from pathlib import Path\n"
        "def memory(name):\n"
        "    lines = Path('/proc/self/status').read_text().splitlines()\n"
        "    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024\n"
        f"{setup}\n"
        "Path('/proc/self/clear_refs').write_text('5')\n"
        "before = memory('VmRSS')\n"
        f"{work}\n"
        "print(memory('VmHWM') - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    *said, grown = done.stdout.strip().splitlines()
    return "\n".join(said), int(grown)
