"""`sluice move`: what is wrong is said before anything is done. tests/peers/test_move.py has the whole way."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.__main__ import main
from app.move import Move, Place
from core.move.journal import Journal
from tests.ports import free_ports


def run(*arguments: str) -> Result:
    # Through the whole command line: a command keeps the help option of the context in which it first ran.
    return CliRunner().invoke(main, ["move", *arguments])


@pytest.fixture
def dead() -> str:
    """An address where nothing listens."""
    return f"127.0.0.1:{free_ports(1)[0]}"


@pytest.mark.parametrize(
    "topics, wanted",
    [
        ((), {"orders", "order-lines", "audit"}),
        (("order*",), {"orders", "order-lines"}),
        (("audit", "x"), {"audit"}),
    ],
)
def test_topics_are_chosen_by_name(topics: tuple[str, ...], wanted: set[str]) -> None:
    chosen = Move(Place("", None), None, Path(), topics)
    assert {name for name in ("orders", "order-lines", "audit") if chosen.wants(name)} == wanted


def test_a_move_has_a_target(tmp_path: Path) -> None:
    Journal(tmp_path, create=True).close()
    ran = run("finish", "--work-dir", str(tmp_path))
    assert ran.exit_code == 1 and "Name the target: --to HOST:PORT" in ran.output


def test_without_a_journal_the_first_step_is_named(tmp_path: Path, dead: str) -> None:
    ran = run("finish", "--to", dead, "--work-dir", str(tmp_path / "none"))
    assert ran.exit_code == 1 and "run `sluice move copy" in ran.output


def test_a_property_that_is_not_known_is_refused_by_its_name(tmp_path: Path, dead: str) -> None:
    Journal(tmp_path, create=True).close()
    properties = tmp_path / "target.properties"
    properties.write_text("sasl.mechanismus=PLAIN\n")
    properties.chmod(0o600)
    ran = run("finish", "--to", dead, "--to-config", str(properties), "--work-dir", str(tmp_path))
    assert ran.exit_code == 1 and "--to-config" in ran.output and "sasl.mechanismus" in ran.output


def test_a_password_in_a_file_that_others_may_read_is_refused(tmp_path: Path, dead: str) -> None:
    Journal(tmp_path, create=True).close()
    properties = tmp_path / "target.properties"
    properties.write_text("sasl.password=hidden\n")
    properties.chmod(0o644)
    ran = run("finish", "--to", dead, "--to-config", str(properties), "--work-dir", str(tmp_path))
    assert ran.exit_code == 1 and "chmod 600" in ran.output and "hidden" not in ran.output


def test_the_data_directory_of_the_source_is_there_and_stopped(tmp_path: Path) -> None:
    gateway = ("--gateway-dir", str(tmp_path / "gateway"), "--work-dir", str(tmp_path))
    Journal(tmp_path, create=True).close()
    assert run("consumers", "--data-dir", str(tmp_path / "typo"), *gateway).exit_code == 2
    assert not (tmp_path / "typo").exists()
    (tmp_path / "empty").mkdir()
    ran = run("consumers", "--data-dir", str(tmp_path / "empty"), *gateway)
    assert ran.exit_code == 1 and "is it the data directory of a broker" in ran.output
    assert not (tmp_path / "gateway" / "gateway.db").exists()


def test_verify_cannot_tell_if_a_cluster_is_out_of_reach(
    tmp_path: Path, dead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.move._OPEN_SECONDS", 0.5)
    ran = run("verify", "--from", dead, "--to", dead, "--work-dir", str(tmp_path))
    assert ran.exit_code == 2 and "Cannot tell: The source at" in ran.output
    ran = run("copy", "--from", dead, "--to", dead, "--work-dir", str(tmp_path))
    assert ran.exit_code == 1 and "cannot be reached" in ran.output
