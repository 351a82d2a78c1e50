"""The lines of the quick start that run the program without installing it, as they stand: `uvx` and `pipx run`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.version import VERSION
from tests.docs.examples import BLOCKS, commands_of
from tests.packaging.running import clean_environment, ephemeral, wrote_and_read
from tests.packaging.tree import copy_tree

# Packages are downloaded, by a machine that may be busy.
pytestmark = pytest.mark.timeout(600)
HERE = "tests/packaging/test_commands.py"
BIN = Path(sys.executable).parent
LINES = [one.text for block in BLOCKS if block.options.get("by") == HERE for one in commands_of(block)]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A checkout, in which the lines are typed."""
    yield copy_tree(tmp_path_factory.mktemp("checkout"))


def test_the_quick_start_shows_both() -> None:
    assert {line.split()[0] for line in LINES} == {"uvx", "pipx"}
    assert all(line.endswith(" sluice") for line in LINES)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What a reader has: both programs, this Python, and nothing that pipx installed before."""
    return clean_environment(
        PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}",
        PIPX_HOME=str(tmp_path / "pipx"),
        PIPX_DEFAULT_PYTHON=sys.executable,
        UV_PYTHON=sys.executable,
    )


@pytest.mark.parametrize("line", LINES)
def test_a_line_starts_the_broker(line: str, tree: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    """On ports that the system chooses; the line itself takes the usual ones."""
    program, *arguments = shlex.split(line)
    command = [BIN / program, *arguments, "serve", "--ephemeral"]
    with ephemeral(command, tree, environment) as told:
        assert wrote_and_read(told["http_url"]) == ["Hello"]


def test_a_changed_source_is_what_uvx_runs(tree: Path, environment: dict[str, str]) -> None:
    """uv keeps what it built; `tool.uv.cache-keys` says when that is no longer the source."""
    (line,) = (line for line in LINES if line.startswith("uvx "))
    program, *arguments = shlex.split(line)
    for version in (VERSION, "98.7.6"):
        (tree / "app" / "version.py").write_text(f'"""The version."""\n\nVERSION = "{version}"\n')
        command = [str(BIN / program), *arguments, "--version"]
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=500)
        assert done.stdout == f"sluice, version {version}\n", done.stderr
