"""Which tests `--fast` runs: those that need only Python, our packages and no more than a broker.

A test belongs to the slow half if any of these holds; nothing has to be listed for a new test:

- It is in a directory of `SLOW`: a kind of test that needs real clients, a browser, a Kafka, kills or minutes.
- It is marked `client(name)`: it needs a program that is not a Python package.
- It uses a fixture of `SLOW_FIXTURES`: the Spark session, or a command in a process of its own.
- It is marked `slow`: it starts or kills a process in another way, or takes more than a second of processor time.

The one process that belongs to the fast half is the broker of a test file (`broker_process` in tests/conftest.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SLOW = {
    "browser",
    "clients",
    "crash",
    "fuzz",
    "limits",
    "openapi",
    "packaging",
    "peers",
    "sdk",
    "simulation",
    "upgrade",
}
SLOW_FIXTURES = {"spark", "spawn"}
# Tests that drive programs of others. Such a test runs once more if it fails, and the end of the run names it.
FOREIGN = {"browser", "clients", "packaging", "peers", "sdk"}


def is_slow_directory(path: Path) -> bool:
    """Whether a path under tests/ is one of the directories that `--fast` does not even import."""
    return path.is_relative_to(TESTS) and path.relative_to(TESTS).parts[:1] in {(name,) for name in SLOW}


def is_slow(item: pytest.Item) -> bool:
    """Whether a test that was collected is in the slow half."""
    return (
        is_slow_directory(item.path)
        or item.get_closest_marker("client") is not None
        or item.get_closest_marker("slow") is not None
        or not SLOW_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
    )


def drives_a_foreign_program(item: pytest.Item) -> bool:
    """Whether a browser, a JVM, Spark or a foreign client has a part in a test: it may fail for a reason of theirs.

    Tests of our code alone run once. So do simulation, fuzzing and kill loops: what they find may not come again.
    """
    return (
        item.path.is_relative_to(TESTS) and item.path.relative_to(TESTS).parts[0] in FOREIGN
    ) or "spark" in getattr(item, "fixturenames", ())
