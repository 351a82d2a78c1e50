"""An archive of the classes that a Spark job loads: `python -m tests.pipeline.class_archive` makes it, once.

A JVM that starts reads, checks and links some thousands of classes, which is a third of the processor time of a short
job. With an archive it maps them from a file (class data sharing: JEP 310, JEP 350). Java 17 writes the archive when
a program ends; so this program runs one export. The archive is of one Java and one class path, which the name of
its file says; a JVM that it does not fit runs without it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.broker_process import ROOT, BrokerProcess
from tests.pipeline.topics import Topics

# Next to the clients that tests/run.py fetches.
ARCHIVES = ROOT / ".cache" / "spark"
# A JVM that lives for seconds never earns back what its optimizing compiler costs.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
END_SECONDS = 120.0


@functools.cache
def archive() -> Path | None:
    """Where the archive for this Java and this Spark is, or would be; None without either of them."""
    java, spark = shutil.which("java"), importlib.util.find_spec("pyspark")
    if java is None or spark is None or spark.origin is None:
        return None
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    # A JVM refuses an archive if a jar is another one, or only newer.
    jars = sorted(
        f"{path.name} {path.stat().st_mtime_ns}" for path in (Path(spark.origin).parent / "jars").iterdir()
    )
    name = hashlib.sha256("\n".join([told, os.path.realpath(java), spark.origin, *jars]).encode()).hexdigest()
    return ARCHIVES / f"{name[:16]}.jsa"


def java_options() -> str:
    """Options for the JVM of a short Spark job: a quick compiler, and the archive where it was made."""
    made = archive()
    if made is None or not made.is_file():
        return QUICK
    # An archive of another class path is no reason to say anything.
    return f"{QUICK} -XX:SharedArchiveFile={made} -Xlog:disable"


def make() -> bool:
    """Run a job and write the archive at its end. Return whether it is there."""
    made = archive()
    if made is None or made.is_file():
        return made is not None
    made.parent.mkdir(parents=True, exist_ok=True)
    # In one step: tests of another working tree may be about to read it.
    written = made.with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        broker = BrokerProcess(home / "data")
        try:
            with Topics(broker.start()) as topics:
                topics.create("classes", 2)
                topics.fill("classes", 100, partitions=2)
            job = subprocess.Popen(_export(broker, home, written), cwd=ROOT, start_new_session=True)
            if job.wait() == 0:
                # The JVM writes the archive when its driver in Python has ended already.
                _wait_for_group(job.pid)
                written.replace(made)
        finally:
            broker.kill()
    return made.is_file()


def _wait_for_group(group: int) -> None:
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise TimeoutError(f"the JVM of process group {group} has not ended")


def _export(broker: BrokerProcess, home: Path, written: Path) -> list[str]:
    return [
        sys.executable, "-m", "pipeline", "run", "export", "--json", "--once", "--topic", "classes",
        "--to", str(home / "table"), "--state", str(home / "state"), "--bootstrap", broker.kafka,
        "--master", "local[2]", "--max-offsets-per-trigger", "100",
        "--spark", f"spark.driver.defaultJavaOptions={QUICK} -XX:ArchiveClassesAtExit={written}",
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(0 if make() else 1)
