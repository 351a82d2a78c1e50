"""The lines of the quick start that run the program without installing it, as they stand: `uvx` and `pipx run`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("line", LINES)
def test_a_line_starts_the_broker(line: str, tree: Path, tmp_path: Path) -> None:
    """On ports that the system chooses; the line itself takes the usual ones."""
    program, *arguments = shlex.split(line)
    environment = clean_environment(
        PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}",
        PIPX_HOME=str(tmp_path / "pipx"),
        PIPX_DEFAULT_PYTHON=sys.executable,
        UV_PYTHON=sys.executable,
    )
    command = [BIN / program, *arguments, "serve", "--ephemeral"]
    with ephemeral(command, tree, environment) as told:
        assert wrote_and_read(told["http_url"]) == ["Hello"]
