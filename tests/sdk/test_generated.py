"""Clients that are generated as docs/guides/sdk.md says, compiled strictly, drive a running gateway.

Two programs, `program.py` and `program.ts`, do the same with them and must tell the same. What a generator warns of
stands here with its reason, or fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker_process import ROOT, BrokerProcess
from tests.conftest import NODE_MODULES, node_program

HERE = Path(__file__).parent
SECONDS = 120
# What the Python generator does not make of the document, and why it need not.
ACCEPTED_WARNINGS = {
    "Unsupported content type application/x-ndjson": "a stream of lines is no object; httpx sends it as content",
    "Unsupported content type */*": "a range of media types; application/octet-stream replaces all of them",
}
EXPECTED: dict[str, Any] = {
    "created": [201, 2, "3600000"],
    "confirmed": 200,
    "differs": [409, "/problems/topic-differs", False],
    "one": [[0, 0]],
    "again": ["true", True],
    "many": [1, 2, 3],
    "mixed": [207, [None, "UNKNOWN_TOPIC_OR_PARTITION"]],
    "refused": [422, "/problems/invalid-request", False, "#/records/0/value"],
    "raw": 1,
    "page": [[[0, 1, "value 0"], [0, 2, "value 1"]], 3, 4, False],
    "since": 4,
    "beyond": [416, "/problems/offset-out-of-range", False],
    "merged": [
        [0, 0, {"n": 1}], [0, 1, "value 0"], [0, 2, "value 1"], [0, 3, "value 2"], [1, 0, None], [1, 1, "/w=="]
    ],
    "filtered": [["trace", "7f"]],
    "record": ["ann", {"n": 1}, True],
    "known": 304,
    "offsets": [4, 2],
    "missing": [404, "/problems/unknown-topic-or-partition", True],
    "polled": [6, True, True, "stable"],
    "acked": 200,
    "lag": 0,
    "group": ["Stable", 1],
    "deleted": 204,
    "gone": [404, "/problems/resource-not-found", False],
    "reset": [[0, 4, 0], [1, 2, 0]],
    "synced": [[True, 0], [True, 1]],
    "alive": 204,
    "stale": [409, "/problems/illegal-generation", False],
    "left": 204,
    "dead": [404, "/problems/unknown-member", False],
    "v2_written": [[0, 0, None]],
    "v2_read": [[0, "a2V5", "AAE="]],
    "v2_missing": 40403,
}  # fmt: skip
EXPECTED["streamed"] = EXPECTED["merged"]


def run(directory: Path, *command: str | Path) -> str:
    """Run a tool; what it prints. It must succeed."""
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        [str(part) for part in command], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=SECONDS, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}:\n{done.stdout[-10_000:]}"
    return done.stdout


def command_of(tool: str, broker: BrokerProcess) -> list[str]:
    """The line of docs/guides/sdk.md that runs a generator, for this gateway."""
    lines = [
        line
        for line in (ROOT / "docs" / "guides" / "sdk.md").read_text().splitlines()
        if re.match(f"(npx )?{tool} ", line)
    ]
    assert len(lines) == 1, f"the page has one line with {tool}"
    return lines[0].replace("http://127.0.0.1:8082", broker.http).split()


def python_program(broker: BrokerProcess, directory: Path) -> list[str | Path]:
    """Generate the Python client and check it; the command of the program that uses it."""
    tool, *arguments = command_of("openapi-python-client", broker)
    printed = run(directory, Path(sys.executable).parent / tool, *arguments)
    warnings = re.findall(r"^(?:Unsupported|Cannot|Unable|Could not|Failed).*$", printed, re.MULTILINE)
    assert set(warnings) == set(ACCEPTED_WARNINGS)
    assert printed.count("WARNING") == len(warnings) and "ERROR" not in printed
    package = directory / "sluice-client"
    shutil.copy(HERE / "program.py", package)
    run(package, sys.executable, "-m", "mypy", "--strict", "sluice_client", "program.py")
    made = [file.stem for file in (package / "sluice_client" / "models").glob("*.py")]
    assert [name for name in made if re.search(r"body$|_type_\d|_item$|response_\d|\d$", name)] == [
        name for name in made if name in ("heartbeat_body", "sync_body", "webhook_to_put_headers_type_0")
    ]
    return [sys.executable, package / "program.py"]


def typescript_program(broker: BrokerProcess, directory: Path) -> list[str | Path]:
    """Generate the TypeScript types and check them; the command of the program that uses them."""
    (directory / "node_modules").symlink_to(NODE_MODULES)
    (directory / "package.json").write_text('{"type": "module"}')
    node, tools = node_program() or "node", NODE_MODULES / ".bin"
    npx, tool, *arguments = command_of("openapi-typescript", broker)
    assert npx == "npx"
    printed = run(directory, node, (tools / tool).resolve(), *arguments)
    assert "warn" not in printed.lower()
    for file in ("program.ts", "tsconfig.json"):
        shutil.copy(HERE / file, directory)
    run(directory, node, (tools / "tsc").resolve(), "-p", ".")
    return [node, directory / "program.ts"]


@pytest.mark.parametrize(
    "made_by",
    [
        pytest.param(python_program, id="python"),
        pytest.param(typescript_program, id="typescript", marks=pytest.mark.client("typescript")),
    ],
)
def test_a_generated_client_compiles_strictly_and_does_everything(
    broker: BrokerProcess,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    made_by: Callable[[BrokerProcess, Path], list[str | Path]],
) -> None:
    program = made_by(broker, tmp_path)
    printed = run(tmp_path, *program, broker.http, request.node.callspec.id)
    assert json.loads(printed) == EXPECTED
