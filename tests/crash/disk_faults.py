"""Real system calls of a real broker that fail, each in turn (R5, R6, R7), by `strace --inject`.

One life of a broker does what changes files: create a topic, write, roll, commit, delete records, compact, delete and
create again, checkpoint, stop. It is lived once to count its system calls; then again and again, and each time
another call fails, SQLite's among them:

    kill    the process dies as it enters an fsync, rename, unlink, mkdir, rmdir, truncate (R5)
    enospc  from one write to a file of the data directory on the disk is full; then there is space again (R6)
    eio     one fsync of a file of the data directory fails (R7)

Afterwards the broker starts again: what was answered is there, what was refused or not answered is there as a whole
or not at all, and after a clean stop no file is left that belongs to nothing.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.broker_process import ROOT, START_SECONDS, BrokerProcess

KILLED_AT = ("fsync", "fdatasync", "rename", "unlink", "mkdir", "rmdir", "ftruncate")
FULL_AT = ("write", "pwrite64", "mkdir", "ftruncate")
FAILED_SYNCS = ("fsync", "fdatasync")
KINDS = ("kill", "enospc", "eio")
# Background work and checkpoints in time for a life of two seconds.
ENVIRONMENT = {
    "SLUICE_BACKGROUND_INTERVAL_MS": "50", "SLUICE_CHECKPOINT_INTERVAL_MS": "250",
    "SLUICE_FILE_DELETE_DELAY_MS": "50", "SLUICE_COMPACTION_INTERVAL_MS": "100",
    "SLUICE_COMPACTION_MIN_DIRTY_RATIO": "0.01", "SLUICE_RETENTION_CHECK_INTERVAL_MS": "200",
}  # fmt: skip
PLAIN, COMPACT, GONE, GROUP = "plain", "compact", "gone", "readers"
CONFIGS = {
    PLAIN: {"segment.bytes": "1000"},
    COMPACT: {"cleanup.policy": "compact", "segment.bytes": "600"},
    GONE: {},
}
_CALL = re.compile(r"^(\d+) +(\w+)\((.*)$")
_PATH = re.compile(r"<(/[^>]*)>|\"(/[^\"]*)\"")
KNOWN = re.compile(
    r"(metadata\.db(-wal|-shm)?|\.lock|\.kafka_cleanshutdown|[a-z-]+-checkpoint|[a-z]+-0"
    r"|[a-z]+-0/(\d{20}\.(log|index|timeindex|snapshot)|partition\.metadata|leader-epoch-checkpoint))"
)


@dataclass
class Told:
    """What the broker has answered in one life."""

    acknowledged: dict[str, dict[int, str]] = field(default_factory=dict)
    # Topics whose creation or deletion was answered; None: requested, and not known.
    topics: dict[str, bool | None] = field(default_factory=dict)
    start: int = 0
    asked_start: int = 0
    committed: int = 0
    asked_commit: int = 0
    refused: int = 0
    # Topics of which a write was refused.
    failed: set[str] = field(default_factory=set)


class TracedBroker(BrokerProcess):
    """A broker under strace, with its failures; `trace` is the file of its calls, if it is only counted."""

    def __init__(self, data_dir: Path, options: Sequence[str]) -> None:
        strace = ["strace", "-f", "--seccomp-bpf", "-qq", *options]
        super().__init__(data_dir, environment=ENVIRONMENT)
        self._strace = strace

    def spawn(self) -> None:
        """See `BrokerProcess.spawn`; the process is strace, which ends as the broker does."""
        command = [*self._strace, self.python, "-m", "app", "serve", "--data-dir", str(self.data_dir)]
        command += ["--listener", "http://127.0.0.1:0", "--listener", "kafka://127.0.0.1:0"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Wait until it says that it listens, or is dead. On a full disk there is no listeners.json."""
        until = time.monotonic() + START_SECONDS
        while self.running and "Ctrl-C stops it" not in self.read_log():
            assert time.monotonic() < until, self.read_log()
            time.sleep(0.02)
        for scheme, port in re.findall(r"(http|kafka)://127.0.0.1:(\d+)$", self.read_log(), re.MULTILINE):
            self.ports[scheme] = int(port)

    def end(self) -> None:
        """SIGTERM to the broker itself, then SIGKILL to all of it if that does not end it."""
        if not self.running:
            self.process = None
            return
        assert self.process is not None
        try:
            os.kill(int((self.data_dir / ".lock").read_text()), signal.SIGTERM)
            self.process.wait(15)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None


class Life:
    """What a client does to a broker, and what it is told.

    `for_good`: a partition that has refused a write must not take one again.
    """

    def __init__(self, broker: BrokerProcess, *, for_good: bool = False) -> None:
        self.broker = broker
        self.for_good = for_good
        self.told = Told()
        self._number = 0

    def run(self) -> None:
        """All of it. Ends early, without an error, if the broker has ended."""
        try:
            with httpx.Client(
                base_url=f"{self.broker.http}/api/v1", timeout=15, trust_env=False
            ) as self.http:
                self._steps()
        except httpx.TransportError:
            pass

    def _steps(self) -> None:
        for topic in CONFIGS:
            self._create(topic)
        for _ in range(12):
            self._write(PLAIN)
            self._write(COMPACT)
        self._write(GONE)
        self._commit(5)
        self._delete_records(4)
        time.sleep(0.4)  # a checkpoint, compaction
        self._delete(GONE)
        self._create(GONE)
        self._write(GONE)
        self._commit(7)
        time.sleep(0.3)  # files go
        self._write(PLAIN)

    def _try(self, method: str, path: str, **options: object) -> httpx.Response | None:
        """The answer, or None if the disk refuses."""
        answer = self.http.request(method, path, **options)  # type: ignore[arg-type]
        if answer.is_success:
            return answer
        allowed = {404, 409, 503, 507}
        if PLAIN in self.told.failed:
            allowed.add(
                416
            )  # what was refused before leaves the log shorter than the next call takes it to be
        assert answer.status_code in allowed, (method, path, answer.status_code, answer.text)
        self.told.refused += 1
        return None

    def _create(self, topic: str) -> None:
        self.told.topics[topic] = None
        answer = self._try("PUT", f"/topics/{topic}", json={"configs": CONFIGS[topic]})
        if answer is not None:
            self.told.topics[topic] = True
            self.told.acknowledged[topic] = {}
            self.told.failed.discard(topic)

    def _write(self, topic: str) -> None:
        self._number += 1
        value = f"{self._number} {'x' * 60}"
        body = {"records": [{"key": f"k{self._number % 3}", "value": value, "partition": 0}]}
        answer = self._try("POST", f"/topics/{topic}/records", params={"acks": "all"}, json=body)
        if answer is None:
            self.told.failed.add(topic)
        else:
            (record,) = answer.json()["records"]
            assert not (self.for_good and topic in self.told.failed), f"{topic} takes writes again"
            if answer.status_code == 200:
                self.told.acknowledged.setdefault(topic, {})[record["offset"]] = value

    def _commit(self, offset: int) -> None:
        self.told.asked_commit = offset
        body = {"offsets": [{"topic": PLAIN, "partition": 0, "next_offset": offset}]}
        if self._try("PATCH", f"/groups/{GROUP}/offsets", json=body) is not None:
            self.told.committed = offset

    def _delete_records(self, before: int) -> None:
        self.told.asked_start = before
        body = {"partitions": [{"partition": 0, "before_offset": before}]}
        if self._try("POST", f"/topics/{PLAIN}:truncate", json=body) is not None:
            self.told.start = before

    def _delete(self, topic: str) -> None:
        self.told.topics[topic] = None
        if self._try("DELETE", f"/topics/{topic}") is not None:
            self.told.topics[topic] = False
        self.told.acknowledged.pop(topic, None)


def read(http: httpx.Client, topic: str) -> tuple[dict[str, Any], dict[int, str]]:
    """The last page of a topic, and all its values by offset."""
    found: dict[int, str] = {}
    offset: str | int = "earliest"
    while True:
        answer = http.get(f"/topics/{topic}/partitions/0/records", params={"offset": offset, "limit": 1000})
        page = answer.raise_for_status().json()
        found |= {record["offset"]: record["value"] for record in page["records"]}
        if page["caught_up"]:
            return page, found
        offset = page["next_offset"]


def check(broker: BrokerProcess, told: Told) -> None:
    """Hold what a broker shows against what it said before."""
    with httpx.Client(base_url=f"{broker.http}/api/v1", timeout=15, trust_env=False) as http:
        topics = {one["name"] for one in http.get("/topics").raise_for_status().json()["items"]}
        for topic, there in told.topics.items():
            assert there is None or there == (topic in topics), f"{topic} should be there: {there}"
        for topic in topics:
            page, found = read(http, topic)
            for offset, value in told.acknowledged.get(topic, {}).items():
                if topic == PLAIN and offset < max(told.start, told.asked_start):
                    continue
                if topic == COMPACT and offset not in found:
                    newer = [v for o, v in told.acknowledged[topic].items() if o > offset]
                    assert len(newer) >= 1, f"the newest of {topic} is lost: {offset}"
                    continue
                assert found.get(offset) == value, f"lost: {topic} @{offset} {value[:9]!r}, {found}"
            if topic == PLAIN:
                start = page["log_start_offset"]
                assert told.start <= start and list(found) == list(range(start, page["high_watermark"]))
        offsets = http.get(f"/groups/{GROUP}/offsets").json().get("offsets", [])
        committed = offsets[0]["next_offset"] if offsets else 0
        # A log whose writes the disk refused ended lower: the start after it cuts the offset back to that end.
        least = told.start if PLAIN in told.failed else told.committed
        assert least <= committed <= told.asked_commit, (told.committed, committed)
        again = http.post(f"/topics/{PLAIN}/records", params={"acks": "all"}, content=b"again")
        assert again.status_code == 200, again.text


def leaks(data: Path) -> list[str]:
    """Files of a stopped broker that belong to nothing."""
    names = (path.relative_to(data).as_posix() for path in data.rglob("*"))
    return sorted(name for name in names if not KNOWN.fullmatch(name))


def count_calls(root: Path, calls: Sequence[str]) -> tuple[Counter[str], list[str]]:
    """How often one thread makes each system call in a life without faults, and the files that they touch."""
    trace = root / "trace"
    data = root / "data"
    shutil.rmtree(data, ignore_errors=True)
    broker = TracedBroker(data, ["-y", "-o", str(trace), "-e", f"trace={','.join(calls)}"])
    life = Life(broker)
    try:
        broker.start()
        life.run()
    finally:
        broker.end()
    assert not life.told.refused, broker.read_log()
    by_thread: Counter[tuple[str, str]] = Counter()
    paths: Counter[str] = Counter()
    # Not the broker's own output, whose name begins like the directory's.
    inside = f"{data}/"
    for line in trace.read_text(errors="replace").splitlines():
        if (match := _CALL.match(line)) and inside in match[3]:
            by_thread[match[1], match[2]] += 1
            paths.update(one or two for one, two in _PATH.findall(match[3]) if inside in (one or two))
    most: Counter[str] = Counter()
    for (_, call), number in by_thread.items():
        most[call] = max(most[call], number)
    return most, [path for path in paths if not re.search(r"\.[0-9a-f]{32}-", path)]


def injection(kind: str, call: str, number: int, paths: Sequence[str]) -> list[str]:
    """strace's options for one fault."""
    where = [option for path in paths for option in ("-P", path)]
    what = {
        "kill": f"{call}:signal=KILL:when={number}",
        "enospc": f"{call}:error=ENOSPC:when={number}..{number + 6}",
        "eio": f"{call}:error=EIO:when={number}",
    }[kind]
    # strace cannot filter calls before it looks at their paths.
    return ["-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={what}", *where]


def live_once(root: Path, kind: str, call: str, number: int, paths: Sequence[str]) -> Told:
    """One life with one fault, and what comes after it."""
    data = root / "data"
    shutil.rmtree(data, ignore_errors=True)
    broker: BrokerProcess = TracedBroker(data, injection(kind, call, number, paths))
    broker.log.unlink(missing_ok=True)
    life = Life(broker, for_good=kind == "eio")
    try:
        broker.start()
        life.run()
    finally:
        broker.end()  # type: ignore[attr-defined]
    assert "Traceback" not in broker.read_log(), broker.read_log()[-3000:]
    broker = BrokerProcess(data, environment=ENVIRONMENT)
    broker.start()
    try:
        check(broker, life.told)
        time.sleep(0.3)
        assert broker.stop() == 0
        broker.start()
        check(broker, life.told)
        time.sleep(0.2)
        assert broker.stop() == 0
    finally:
        broker.kill()
    assert not leaks(data), leaks(data)
    assert "Traceback" not in broker.read_log(), broker.read_log()[-3000:]
    return life.told


@dataclass(frozen=True)
class Counted:
    """A life without faults: how often one thread makes each system call, and the files of all of them."""

    calls: Counter[str]
    paths: list[str]


def count(root: Path) -> Counted:
    """Live once."""
    return Counted(*count_calls(root, sorted({*KILLED_AT, *FULL_AT, *FAILED_SYNCS})))


def run(root: Path, kind: str, points: int, seed: int, counted: Counted) -> str:
    """Run a number of faults of one kind, spread over all of them; return the outcome."""
    calls = {"kill": KILLED_AT, "enospc": FULL_AT, "eio": FAILED_SYNCS}[kind]
    # SQLite writes again what an fsync did not take; a log must not believe that.
    paths = [path for path in counted.paths if kind != "eio" or path.endswith(".log")]
    places = [(call, number) for call in calls for number in range(1, counted.calls[call] + 1)]
    chosen = random.Random(seed).sample(places, min(points, len(places)))
    refused = 0
    for call, number in chosen:
        try:
            told = live_once(root, kind, call, number, paths)
        except BaseException as error:
            error.add_note(f"{kind} at {call} number {number}")
            raise
        refused += told.refused
        print(f"{kind} at {call} {number}: {told.refused} refusals", flush=True)
    return f"{kind}: {len(chosen)} of {len(places)} places, {refused} refusals; every promise held"
