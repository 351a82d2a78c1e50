"""The pages of docs/reference are what the code says, and name all that there is."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner

from app.__main__ import main
from app.commands.lazy import COMMANDS
from app.errors import KINDS
from app.reference.pages import differing, pages
from app.reference.settings import DOCUMENTED, OTHER
from app.settings import SETTINGS, plain_fields, variable_of
from core.config import Config
from core.errors import ErrorCode
from core.topic_config import DEFINITIONS
from pipeline.jobs.registry import KINDS as JOBS
from tests.broker_process import ROOT

REFERENCE = ROOT / "docs" / "reference"


def text_of(name: str) -> str:
    """The text of a page."""
    return (REFERENCE / name).read_text()


def test_every_page_is_what_the_code_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert differing(REFERENCE, main) == [], "run `sluice docs`"
    assert {file.name for file in REFERENCE.iterdir()} == set(pages(main))


def test_a_page_that_is_old_or_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    (tmp_path / "docs" / "reference" / "settings.md").write_text("old")
    done = CliRunner().invoke(main, ["docs", "--check"])
    assert done.exit_code == 1
    said = "sluice: docs/reference/{} is not what the code says; run `sluice docs`."
    assert done.stderr.splitlines() == [said.format(name) for name in pages(main)]


def test_every_setting_appears_with_a_sentence() -> None:
    rows = re.findall(r"^\| `(SLUICE_\w+)` \|.*\| (\w.+?) \|$", text_of("settings.md"), re.MULTILINE)
    names = [name for name, _ in rows]
    assert sorted(names) == sorted({s.variable for s in SETTINGS} | {variable_of(n) for n in plain_fields()})
    assert DOCUMENTED.keys() | OTHER.keys() == plain_fields().keys()
    assert not DOCUMENTED.keys() & OTHER.keys()
    assert len(SETTINGS) + len(DOCUMENTED) <= 53, "the rest may change without notice"
    assert all(meaning.endswith(".") for _, meaning in rows)


def test_every_setting_of_the_process_is_one_of_config() -> None:
    assert plain_fields().keys() <= {field.name for field in fields(Config)}


def test_every_topic_setting_appears() -> None:
    assert all(f"| `{name}` |" in text_of("topic-settings.md") for name in DEFINITIONS)


def test_every_kind_of_error_appears() -> None:
    text = text_of("errors.md")
    assert all(f"| `{kind}` | {KINDS[kind].status} |" in text for kind in KINDS)
    assert all(f" {code.name} " in text for code in ErrorCode if code is not ErrorCode.NONE)


def test_every_route_appears() -> None:
    text = text_of("http-api.md")
    document = msgspec.json.decode((ROOT / "openapi" / "openapi.json").read_bytes())
    for path, item in document["paths"].items():
        for method in item.keys() & {"get", "put", "post", "patch", "delete"}:
            assert f"### {method.upper()} {path}\n" in text


def test_every_metric_of_the_code_appears() -> None:
    text = text_of("metrics.md")
    source = (ROOT / "app" / "metrics.py").read_text()
    for name in set(re.findall(r'"(sluice_[a-z0-9_]+)"', source)) - {
        "sluice_kafka",
        "sluice_text",
        "sluice_http",
    }:
        assert f"| `{name}" in text, name
    for name, labels in (("sluice_topic_log_bytes", "topic"), ("sluice_kafka_errors_total", "api, error")):
        assert f"| `{name}` |" in text
        assert labels in text.partition(f"| `{name}` |")[2].split("\n")[0]


def test_every_command_and_job_appears() -> None:
    commands = text_of("cli.md")
    own = [name for name, command in main.commands.items() if not command.hidden]
    for name in (*COMMANDS, *own):
        assert f"## sluice {name}\n" in commands, name
    jobs = text_of("jobs.md")
    for name, kind in JOBS.items():
        section = jobs.partition(f"## {name}\n")[2].partition("\n## ")[0]
        for field in kind.settings.__struct_fields__:
            assert (
                f"--{field.removesuffix('s') if field == 'topics' else field}".replace("_", "-") in section
            ), field


def test_the_command_is_hidden() -> None:
    with click.Context(main) as context:
        assert "docs" not in main.get_help(context)
