"""The examples of README.md and docs/, typed in as they stand. `examples.py` says how a fence is read.

Scenarios that begin with `spark` need the Spark session: tests/pipeline/test_examples.py and test_places.py run them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker_process import ROOT
from tests.docs.examples import BLOCKS, SCENARIOS, commands_of, needs, reader

pytestmark = pytest.mark.slow

HERE = sorted(name for name in SCENARIOS if not name.startswith("spark"))
# Commands and Python blocks that run; the number may only rise.
EXAMPLES_THAT_RUN = 165


def scenario(name: str) -> object:
    """A parameter that needs the clients of its commands."""
    return pytest.param(name, marks=[pytest.mark.client(client) for client in sorted(needs(name))])


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", [scenario(name) for name in HERE])
def test_a_scenario_does_what_its_page_says(name: str, tmp_path: Path) -> None:
    with reader(tmp_path / "home", SCENARIOS[name]) as person:
        for block in SCENARIOS[name]:
            person.run(block)


def test_every_example_says_what_runs_it() -> None:
    for block in BLOCKS:
        if block.language not in ("sh", "python"):
            continue
        by = block.options.get("by", "hand")
        assert "run" in block.options or "by" in block.options, f"{block.place} has neither run= nor by="
        assert by == "hand" or (ROOT / by).is_file(), f"{block.place}: there is no {by}"


def test_a_scenario_is_on_one_page() -> None:
    for name, blocks in SCENARIOS.items():
        assert len({block.page for block in blocks}) == 1, name


def test_no_example_stops_to_run_unnoticed() -> None:
    ran = [block for blocks in SCENARIOS.values() for block in blocks]
    count = sum(len(commands_of(block)) if block.language == "sh" else 1 for block in ran)
    assert count >= EXAMPLES_THAT_RUN
