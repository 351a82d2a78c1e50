"""Fetch Apache Kafka and its Java clients from Maven Central: `python -m tests.peers.fetch [NAME…]`.

Each name of `SETS` becomes a directory of jars, `.cache/peers/NAME`. Our own Java sources are compiled against a set
into `.cache/peers/classes`, under a name that their contents give: trees with other sources may share the cache.
A second call does nothing. Only the standard library is used, and `mvn` and `javac` must be on the path.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent.parent
PEERS = ROOT / ".cache" / "peers"
JAVA = Path(__file__).resolve().parent / "java"
STAMP = "fetched"
# Class files that also Java 11 reads, which Kafka's clients still support.
JAVA_RELEASE = "11"
# A registry may be slow for a while.
FETCH_TRIES = 3
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

#: Name of a set → its artifacts, as `group:artifact:version`. What these depend on comes with them.
SETS: dict[str, tuple[str, ...]] = {
    # The server, every command-line tool, the clients, Connect with MirrorMaker and the file connectors, Streams.
    "kafka-4.1": (
        "org.apache.kafka:kafka_2.13:4.1.1",
        "org.apache.kafka:kafka-tools:4.1.1",
        "org.apache.kafka:kafka-shell:4.1.1",
        "org.apache.kafka:kafka-clients:4.1.1",
        "org.apache.kafka:connect-runtime:4.1.1",
        "org.apache.kafka:connect-mirror:4.1.1",
        "org.apache.kafka:connect-file:4.1.1",
        "org.apache.kafka:connect-json:4.1.1",
        "org.apache.kafka:kafka-streams:4.1.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.1",
        "org.apache.logging.log4j:log4j-core:2.25.1",
    ),
    "kafka-3.9": (
        "org.apache.kafka:kafka_2.13:3.9.1",
        "org.apache.kafka:kafka-tools:3.9.1",
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.slf4j:slf4j-reload4j:1.7.36",
    ),
    # The share consumer as it is since 4.2: it renews locks, and knows a strict limit of records.
    "clients-4.4": (
        "org.apache.kafka:kafka-clients:4.4.0",
        "org.slf4j:slf4j-nop:1.7.36",
    ),
    # The tools of share groups: those of 4.1 cannot move offsets yet, and Maven Central has none newer.
    "tools-4.3": (
        "org.apache.kafka:kafka-tools:4.3.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.1",
        "org.apache.logging.log4j:log4j-core:2.25.1",
    ),
    "clients-2.8": (
        "org.apache.kafka:kafka-clients:2.8.2",
        "org.slf4j:slf4j-nop:1.7.36",
        "com.fasterxml.jackson.core:jackson-databind:2.16.2",
    ),
    # Spark's own Kafka connector, for the PySpark of pyproject.toml; Maven Central has none newer than 4.2.
    "spark-kafka": (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ),
}
# The sets whose artifacts come alone: Spark has the rest.
ALONE = ("spark-kafka",)
CLIENTS = ROOT / "tests" / "clients"
_CLIENT = (CLIENTS / "drivers" / "JavaClient.java", CLIENTS / "members" / "JavaMember.java")
_TRANSACTIONS = CLIENTS / "transactional" / "JavaTransactions.java"
_SHARE_MEMBER = CLIENTS / "share" / "JavaShareMember.java"
_COPIER = CLIENTS / "members" / "JavaCopier.java"
_SERVER = (*_CLIENT, _TRANSACTIONS, _COPIER, JAVA / "Child.java", JAVA / "Mains.java", JAVA / "OneNode.java")
#: Name of a set → our own sources that are compiled against it.
SOURCES: dict[str, tuple[Path, ...]] = {
    "kafka-4.1": (*_SERVER, _SHARE_MEMBER, JAVA / "WordCount.java"),
    "kafka-3.9": _SERVER,
    "tools-4.3": (JAVA / "Child.java", JAVA / "Mains.java"),
    "clients-4.4": (_SHARE_MEMBER, JAVA / "Child.java"),
    "clients-2.8": _CLIENT,
}


def class_path(name: str) -> str:
    """Return the class path of a set: our own classes and log settings, then its jars.

    Raises FileNotFoundError if the set is not fetched.
    """
    if not _stamped(PEERS / name, _pom(name)):
        raise FileNotFoundError(f"{name} is not fetched: run python -m tests.peers.fetch {name}")
    own = [str(compiled(name))] if name in SOURCES else []
    return os.pathsep.join([*own, str(JAVA), f"{PEERS / name}/*"])


def is_fetched(*names: str) -> bool:
    """Return whether Java runs here and these sets, all if none is named, are as `SETS` wants them."""
    return shutil.which("java") is not None and all(_stamped(PEERS / n, _pom(n)) for n in names or SETS)


def fetch(name: str) -> Path:
    """Fetch one set unless it is there; return its directory. Raises CalledProcessError with Maven's words."""
    directory, pom = PEERS / name, _pom(name)
    with _lock(name):
        if _stamped(directory, pom):
            return directory
        shutil.rmtree(directory, ignore_errors=True)
        PEERS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=PEERS) as work:
            Path(work, "pom.xml").write_text(pom)
            jars = Path(work, "jars")
            command = ["mvn", "-B", "-q", COPY, f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
            _run(command, work, FETCH_TRIES)
            jars.rename(directory)
        (directory / STAMP).write_text(pom)
    return directory


def compiled(name: str) -> Path:
    """Compile our own sources of a set unless that is done; return the directory of classes."""
    sources = SOURCES.get(name, ())
    text = b"".join(source.name.encode() + b"\0" + source.read_bytes() for source in sources)
    digest = hashlib.sha256(text + _pom(name).encode() + JAVA_RELEASE.encode()).hexdigest()[:16]
    directory = PEERS / "classes" / f"{name}-{digest}"
    with _lock(f"classes-{name}"):
        if directory.is_dir():
            return directory
        directory.parent.mkdir(parents=True, exist_ok=True)
        work = tempfile.mkdtemp(dir=directory.parent)
        options = ["--release", JAVA_RELEASE, "-nowarn", "-Xlint:-options", "-d", work]
        _run(["javac", *options, "-cp", f"{PEERS / name}/*", *map(str, sources)], work, 1)
        Path(work).rename(directory)
    return directory


def _pom(name: str) -> str:
    alone = ""
    if name in ALONE:
        alone = (
            "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        )
    form = (
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>\n"
    )
    dependencies = "".join(form.format(*map(escape, artifact.split(":")), alone) for artifact in SETS[name])
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
        f"<groupId>sluice.tests</groupId><artifactId>{escape(name)}</artifactId><version>1</version>\n"
        f"<dependencies>\n{dependencies}</dependencies></project>\n"
    )


def _stamped(directory: Path, wanted: str) -> bool:
    stamp = directory / STAMP
    return stamp.is_file() and stamp.read_text() == wanted


def _run(command: list[str], directory: str, tries: int) -> None:
    for attempt in range(tries):
        done = subprocess.run(
            command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
        if done.returncode == 0:
            return
        print(
            f"{command[0]} failed, attempt {attempt + 1} of {tries}:\n{done.stdout}{done.stderr}", flush=True
        )
    done.check_returncode()


@contextmanager
def _lock(name: str) -> Iterator[None]:
    """One process fetches a set; others that share the cache wait for it."""
    PEERS.mkdir(parents=True, exist_ok=True)
    with (PEERS / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(names: Sequence[str]) -> int:
    """Fetch the named sets, all if none is named, and compile our Java sources for them; return the exit code."""
    if unknown := set(names) - SETS.keys():
        print(f"Unknown set {', '.join(sorted(unknown))}: the sets are {', '.join(SETS)}.")
        return 2
    missing = [program for program in ("mvn", "javac") if shutil.which(program) is None]
    if missing:
        print(f"{' and '.join(missing)} not found: apt-get install maven openjdk-17-jdk-headless")
        return 1
    try:
        for name in names or SETS:
            jars = len(list(fetch(name).glob("*.jar")))
            if name in SOURCES:
                compiled(name)
            print(f"{name}: {jars} jars")
    except subprocess.CalledProcessError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
