"""`sluice spark` becomes the pipeline's program, and says what to install where that is not possible."""

from __future__ import annotations

import os
import sys

import pytest
from click.testing import CliRunner

from app.__main__ import main
from app.commands import spark as command


def test_the_process_becomes_the_pipeline_with_all_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, arguments: ran.append([program, *arguments]))
    for arguments in (["run", "export", "--topic", "a"], ["--help"], ["plan", "x.yaml", "--json"], []):
        assert CliRunner().invoke(main, ["spark", *arguments]).exit_code == 0
        assert ran.pop() == [sys.executable, sys.executable, "-m", "pipeline", *arguments]


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "pyspark" else object())
    result = CliRunner().invoke(main, ["spark", "run", "export"])
    assert result.exit_code == 2
    assert result.stderr.startswith("sluice: pyspark is not installed. ")
    assert "pip install '.[spark,lake]'" in result.stderr
