"""The configuration file: the same settings and checks as the environment, and where each value comes from."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from app.__main__ import main
from app.settings import SETTINGS, load_with_file, origins, plain_fields, read_file
from core.config import Config, Endpoint
from core.errors import StartupError


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    """Where the file is."""
    return tmp_path / "sluice.toml"


def test_a_file_sets_numbers_switches_lists_and_tables(toml: Path) -> None:
    toml.write_text(
        'data_dir = "d"\nlisteners = ["http://127.0.0.1:1", "kafka://127.0.0.1:2"]\nmax_wait_ms = 7\n'
        "auto_create_topics = false\nhttp_max_json_depth = 9\n[topic_defaults]\nretention.ms = 5\n"
        'cleanup.policy = ["compact", "delete"]\n'
    )
    config = load_with_file({}, toml)
    assert config.data_dir == Path("d")
    assert config.listeners == (Endpoint("http", "127.0.0.1", 1), Endpoint("kafka", "127.0.0.1", 2))
    assert (config.max_wait_ms, config.auto_create_topics, config.http_max_json_depth) == (7, False, 9)
    assert config.topic_defaults == {"retention.ms": "5", "cleanup.policy": "compact,delete"}


def test_a_flag_wins_over_the_environment_and_that_over_the_file(toml: Path) -> None:
    toml.write_text('data_dir = "file"\nlog_level = "debug"\nmax_groups = 3\n')
    environ = {"SLUICE_DATA_DIR": "environ", "SLUICE_LOG_LEVEL": "error", "SLUICE_CONFIG": str(toml)}
    config = load_with_file(environ, None, data_dir="flag")
    assert (config.data_dir, config.log_level, config.max_groups) == (Path("flag"), "error", 3)
    assert load_with_file({}, None) == Config()


def test_every_setting_can_be_in_the_file(toml: Path) -> None:
    names = {setting.variable.removeprefix("SLUICE_").lower() for setting in SETTINGS} | plain_fields().keys()
    assert {origin.name for origin in origins({}, None)} == names
    for name in names:
        toml.write_text(f'{name} = ""\n')
        assert read_file(toml) == {f"SLUICE_{name.upper()}": ""}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_wait_ms = ", "is not TOML: Invalid value (at end of document)"),
        ("max_wait_mss = 1", "there is no setting 'max_wait_mss'. Did you mean max_wait_ms?"),
        ("max_wait_ms = 0", "sluice.toml: max_wait_ms must be a whole number from 1, not '0'."),
        ("max_wait_ms = [1]", "max_wait_ms must be a string, a number, true, false, or a list of strings."),
        ("log_level = 'loud'", "sluice.toml: log_level must be one of debug, info, warning, error"),
        ("[max_wait_ms]\na = 1", "max_wait_ms must be a string"),
        ("[topic_defaults]\nretention = 5", "sluice.toml: topic_defaults: "),
        ("listeners = ['http://0.0.0.0:1']", "can be reached from other machines"),
        ("\xff".encode("latin-1"), "is not TOML"),
    ],
)
def test_a_file_that_makes_no_sense_is_one_line(toml: Path, text: str | bytes, said: str) -> None:
    toml.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(StartupError) as refusal:
        load_with_file({}, toml)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_not_there_is_one_line(toml: Path) -> None:
    with pytest.raises(
        StartupError, match=r"Cannot read the configuration file .*sluice\.toml: No such file"
    ):
        load_with_file({}, toml)


def test_show_names_values_and_their_sources(toml: Path) -> None:
    toml.write_text("max_groups = 3\n")
    run = CliRunner().invoke(
        main, ["config", "show", "--config", str(toml)], env={"SLUICE_LOG_LEVEL": "debug"}
    )
    assert run.exit_code == 0
    assert [line.split() for line in run.output.splitlines()] == [
        ["log_level", "debug", "environment", "SLUICE_LOG_LEVEL"],
        ["max_groups", "3", str(toml)],
    ]
    everything = CliRunner().invoke(main, ["config", "show", "--all"])
    assert ["max_groups", "100000", "default"] in [line.split() for line in everything.output.splitlines()]
    assert "--all shows them" in CliRunner().invoke(main, ["config", "show"]).output


def test_check_says_valid_or_what_is_wrong(toml: Path) -> None:
    toml.write_text("max_groups = 3\n")
    good = CliRunner().invoke(main, ["config", "check", "--config", str(toml)])
    assert (good.exit_code, good.output) == (0, "The settings are valid.\n")
    toml.write_text("max_groups = -3\n")
    bad = CliRunner().invoke(main, ["config", "check"], env={"SLUICE_CONFIG": str(toml)})
    assert bad.exit_code == 2
    assert bad.output == f"sluice: {toml}: max_groups must be a whole number from 1, not '-3'.\n"
