"""The examples of README.md and docs/: found, sorted by scenario, and run as a reader would type them.

A fence names its scenario: ```` ```sh {run=tour} ````. Blocks of one scenario are on one page and run in its
order, against one broker and in one empty directory.

- A line is a command; a line that ends in `\\` continues with the next one. Lines after it that begin with `# ` are
  what it prints: `…` matches any text, and a line of `…` alone matches any lines. Without such lines the command must
  succeed and must not print a problem document.
- `sluice serve …` starts that broker and leaves it running; a scenario without such a line gets a broker with the
  default listeners. Ports are replaced by free ones.
- `export NAME=VALUE` holds for the commands after it, and for brokers.
- `<name>` in a command is the member `name` of the newest JSON that a command printed.
- A Python block runs in this process, in the same directory; `# ` lines after a line with `print(` are what the
  block prints.
- `pause=SECONDS` waits before each command. `by=PATH` in place of `run=` names another test that runs
  the block, and `by=hand` says that no test does.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.broker_process import ROOT, BrokerProcess
from tests.ports import free_ports

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
COMMAND_SECONDS = 60
# The first words of commands that a reader may not have, and the clients of tests/conftest.py that they are.
CLIENTS = {"curl": "curl", "kcat": "kcat", "nc": "netcat"}
_FENCE = re.compile(r"^```(\w*)[ \t]*(?:\{([^}]*)\})?[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_SHOWN = re.compile(r"^````.*?^````[ \t]*$", re.MULTILINE | re.DOTALL)
_PORT = re.compile(r"127\.0\.0\.1([: ])(\d{4,5})\b")


@dataclass(frozen=True)
class Block:
    """One fence: where it is, its language, its options (`run=tour pause=1`) and its text."""

    page: Path
    line: int
    language: str
    options: dict[str, str]
    text: str

    @property
    def place(self) -> str:
        """The page and the line of the fence."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command and the lines that it should print; None where the page does not say."""

    text: str
    expected: list[str] | None


def blocks_of(page: Path) -> list[Block]:
    """Return the fences of a page in their order."""
    text = page.read_text()
    # A fence of four backticks shows a fence of three. Its lines are kept for the numbers of the others.
    text = _SHOWN.sub(lambda match: "\n" * match[0].count("\n"), text)
    found = []
    for match in _FENCE.finditer(text):
        options = dict(one.split("=", 1) for one in (match[2] or "").split())
        found.append(Block(page, text.count("\n", 0, match.start()) + 1, match[1], options, match[3]))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def scenarios() -> dict[str, list[Block]]:
    """Return the blocks that run, by scenario."""
    found: dict[str, list[Block]] = {}
    for block in BLOCKS:
        if "run" in block.options:
            found.setdefault(block.options["run"], []).append(block)
    return found


SCENARIOS = scenarios()


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a shell block, each with what it should print."""
    found: list[Command] = []
    open_line = ""
    for line in block.text.splitlines():
        if line.startswith("# ") and not open_line:
            assert found, f"{block.place}: output before the first command"
            last = found.pop()
            found.append(Command(last.text, [*(last.expected or []), line[2:]]))
        elif line.endswith("\\"):
            open_line += line[:-1]
        elif line or open_line:
            found.append(Command(open_line + line, None))
            open_line = ""
    assert not open_line, f"{block.place}: the last line ends in a backslash"
    return found


def needs(name: str) -> set[str]:
    """Return the clients of tests/conftest.py that a scenario's commands need."""
    words = {
        word
        for block in SCENARIOS[name]
        if block.language == "sh"
        for command in commands_of(block)
        for word in re.findall(r"(?:^|[|&(;]\s*)(\w+)", command.text)
    }
    return {client for word, client in CLIENTS.items() if word in words}


def pattern_of(expected: list[str]) -> str:
    """Return the regular expression that output must match as a whole."""
    parts = []
    for line in expected:
        if line == "…":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(re.escape(line.rstrip()).replace("…", ".*") + r"[ \t]*\n")
    return "".join(parts)


def is_problem(output: str) -> bool:
    """Tell whether output is the answer of a request that was refused."""
    with contextlib.suppress(ValueError):
        answer = json.loads(output)
        return isinstance(answer, dict) and ("error_code" in answer or int(answer.get("status", 0)) >= 400)
    return False


@dataclass
class Reader:
    """A person with a terminal: an empty directory, brokers that run, and what was printed last."""

    home: Path
    brokers: list[BrokerProcess] = field(default_factory=list)
    ports: dict[str, int] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    newest: dict[str, Any] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        programs = {
            "sluice": f"{sys.executable} -m app",
            "python": sys.executable,
            "curl": "curl -sS",
            "nc": "nc.openbsd",
        }
        self.bin = self.home.with_name(self.home.name + "-bin")
        self.bin.mkdir()
        search = os.environ["PATH"]
        for name, program in programs.items():
            file = self.bin / name
            file.write_text(
                f'#!/bin/sh\nPATH={shlex.quote(search)} PYTHONPATH={shlex.quote(str(ROOT))} exec {program} "$@"\n'
            )
            file.chmod(0o755)

    # --- brokers -------------------------------------------------------------------------------------------

    def prepare(self, blocks: list[Block]) -> None:
        """Start what the scenario starts, or a broker with the default listeners."""
        shell = [command.text for block in blocks if block.language == "sh" for command in commands_of(block)]
        starts = [text for text in shell if text.startswith("sluice serve")]
        for text in shell:
            if match := re.fullmatch(r"export (\w+)=(\S+)", text):
                self.environment[match[1]] = match[2]
        self.environment.setdefault("SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS", "0")
        if not starts:
            broker = self._broker([]).start()
            self.ports = {"8082": broker.ports["http"], "9092": broker.ports["kafka"]}
        else:
            written = sorted({match[2] for text in starts for match in _PORT.finditer(text)})
            self.ports = dict(zip(written, free_ports(len(written)), strict=True))
            for text in starts:
                self._broker(shlex.split(self.replaced(text))[2:]).spawn()
            for broker in self.brokers:
                broker.wait_ready()
            if any("--peer" in text for text in starts):
                self._wait_for_peers()
        first = self.brokers[0]
        self.environment |= {"SLUICE_URL": first.http, "SLUICE_BOOTSTRAP": first.kafka}

    def _broker(self, arguments: list[str]) -> BrokerProcess:
        """A broker with the arguments of `sluice serve`."""
        directory, options, ports = f"sluice-data-{len(self.brokers)}", [], {}
        rest = iter(arguments)
        for word in rest:
            if word == "--data-dir":
                directory = next(rest)
            elif word == "--listener":
                scheme, address = next(rest).split("://")
                host, _, option = address.partition("?")
                ports[f"{scheme}?{option}" if option else scheme] = int(host.rpartition(":")[2])
            else:
                options.append(word)
        process = BrokerProcess(self.home / directory, options=options, environment=dict(self.environment))
        default = {"http": 0} if "--upstream" in options else {"http": 0, "kafka": 0}
        process.ports = default | ports
        self.brokers.append(process)
        return process

    def _wait_for_peers(self) -> None:
        """Wait until the brokers of a cluster have found each other: until one takes a replicated topic."""
        url = f"{self.brokers[0].http}/api/v1/topics/found-each-other"
        body = json.dumps({"replication_factor": len(self.brokers)}).encode()
        headers = {"content-type": "application/json"}
        for _ in range(100):
            with contextlib.suppress(urllib.error.URLError):
                urllib.request.urlopen(urllib.request.Request(url, body, headers, method="PUT"), timeout=10)
                return
            time.sleep(0.1)
        raise AssertionError("the brokers did not find each other")

    def close(self) -> None:
        """End the brokers; none of them may have been surprised."""
        for broker in self.brokers:
            broker.kill()
        for broker in self.brokers:
            assert "Traceback" not in broker.read_log(), broker.read_log()[-20_000:]

    def replaced(self, text: str) -> str:
        """Put real ports and known values into a text."""
        text = _PORT.sub(lambda m: f"127.0.0.1{m[1]}{self.ports.get(m[2], m[2])}", text)
        return re.sub(r"<(\w+)>", lambda m: str(self.newest.get(m[1], m[0])), text)

    # --- running -------------------------------------------------------------------------------------------

    def run(self, block: Block) -> None:
        """Run a block; fails where something is not as the page says."""
        if block.language == "python":
            self._run_python(block)
            return
        assert block.language == "sh", f"{block.place}: only sh and python run"
        for command in commands_of(block):
            if command.text.startswith(("sluice serve", "export ")):
                continue
            time.sleep(float(block.options.get("pause", "0")))
            self._compare(block, command, self.type(command.text, block.place))

    def type(self, text: str, place: str) -> str:
        """Return what a command prints; it must end well, and our own command must not complain."""
        line = self.replaced(text)
        environment = {**os.environ, **self.environment, "PATH": f"{self.bin}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.home,
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        said = f"{place}: {line}\n{done.stdout}{done.stderr}"
        assert done.returncode == 0, said
        assert not (line.startswith("sluice ") and done.stderr), said
        return done.stdout

    def _compare(self, block: Block, command: Command, output: str) -> None:
        if output and not output.endswith("\n"):
            output += "\n"
        with contextlib.suppress(ValueError):
            answer = json.loads(output)
            self.newest.update(answer if isinstance(answer, dict) else {})
        about = f"{block.place}: {command.text}\nprinted:\n{output}"
        if command.expected is None:
            assert not is_problem(output), about
            return
        expected = command.expected
        if " & " in command.text:  # two programs at once: which of them prints first is open
            expected, output = sorted(expected), "".join(sorted(output.splitlines(keepends=True)))
        wanted = self.replaced("\n".join(expected)).splitlines()
        assert re.fullmatch(pattern_of(wanted), output), f"{about}\nexpected:\n" + "\n".join(wanted)

    def _run_python(self, block: Block) -> None:
        expected, after_print = [], False
        for line in block.text.splitlines():
            if after_print and line.lstrip().startswith("# "):
                expected.append(line.lstrip()[2:])
            else:
                after_print = "print(" in line
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.chdir(self.home):
            exec(compile(self.replaced(block.text), block.place, "exec"), self.names)
        if expected:
            about = f"{block.place} printed:\n{printed.getvalue()}"
            assert re.fullmatch(pattern_of(expected), printed.getvalue()), about


@contextlib.contextmanager
def reader(home: Path, blocks: list[Block], kind: type[Reader] = Reader) -> Iterator[Reader]:
    """A reader in an empty directory whose brokers run."""
    home.mkdir()
    person = kind(home)
    try:
        person.prepare(blocks)
        yield person
    finally:
        person.close()
