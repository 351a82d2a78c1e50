"""The commands that the documentation shows for the image: `docker …`, and `curl …` to what it publishes."""

from __future__ import annotations

import shlex

from tests.docs.examples import BLOCKS, commands_of

# The blocks that belong to the tests of the image say so.
_BY = "tests/packaging/test_deployments.py"


def shown(*first: str) -> list[list[str]]:
    """Return the words of all commands that begin with these words; without any, of all."""
    blocks = [block for block in BLOCKS if block.options.get("by") == _BY]
    lines = [shlex.split(one.text) for block in blocks for one in commands_of(block)]
    return [line for line in lines if tuple(line[: len(first)]) == first]
