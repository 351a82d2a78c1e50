"""Flags are made from settings: one for each field, with type and help; what was not given is not passed on."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from pipeline.command.flags import flag_name, given, options
from pipeline.jobs.registry import KINDS
from pipeline.jobs.settings import Export, Job


def _parsed(kind: type[Job], *arguments: str) -> dict[str, object]:
    found: dict[str, object] = {}
    command = click.Command(
        "x", params=[*options(kind)], callback=lambda **values: found.update(given(kind, values))
    )
    done = CliRunner().invoke(command, list(arguments))
    assert done.exit_code == 0, done.output
    return found


@pytest.mark.parametrize("name", KINDS)
def test_every_field_is_a_flag_with_words(name: str) -> None:
    kind = KINDS[name].settings
    flags = {option.name: option for option in options(kind)}
    assert sorted(flags) == sorted(kind.__struct_fields__)
    assert all(option.help and option.opts[0] == flag_name(field) for field, option in flags.items())
    assert _parsed(kind) == {}


def test_lists_pairs_choices_and_switches() -> None:
    found = _parsed(
        Export, "--topic", "a", "--topic", "b", "--to", "x", "--once", "--format", "delta",
        "--spark", "spark.a=1=2", "--max-offsets-per-trigger", "5",
    )  # fmt: skip
    assert found == {
        "topics": ["a", "b"], "to": "x", "once": True, "format": "delta", "spark": {"spark.a": "1=2"},
        "max_offsets_per_trigger": 5,
    }  # fmt: skip


def test_a_default_and_a_need_stand_in_the_help() -> None:
    text = CliRunner().invoke(click.Command("x", params=[*options(Export)]), ["--help"]).output
    assert "[required]" in text and "[earliest]" in text and "[127.0.0.1:9092]" in text
