"""The command line, and the application as an ASGI lifespan."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from app import __main__ as command
from app.main import create_app
from app.version import VERSION
from core.config import Config, Endpoint
from tests.app.conftest import config_for

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """What `serve` would have run."""
    seen: list[Config] = []

    def run(config: Config) -> int:
        seen.append(config)
        return 0

    monkeypatch.setattr("app.serve.run", run)
    return seen


def test_without_arguments_it_serves_the_defaults(runs: list[Config]) -> None:
    done = CliRunner().invoke(command.main, [])
    assert (done.exit_code, runs) == (0, [Config()])


def test_serve_takes_flags(runs: list[Config]) -> None:
    arguments = [
        "serve",
        "--data-dir",
        "d",
        "--listener",
        "http://127.0.0.1:1",
        "--listener",
        "kafka://[::1]:2",
    ]
    done = CliRunner().invoke(command.main, [*arguments, "--advertised", "kafka://a:3"])
    assert done.exit_code == 0
    (config,) = runs
    assert config.data_dir == Path("d")
    assert config.listeners == (Endpoint("http", "127.0.0.1", 1), Endpoint("kafka", "::1", 2))
    assert config.advertised == Endpoint("kafka", "a", 3)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--listener", "nonsense"),
        ("--listener", "http://0.0.0.0:0"),
        ("--advertised", "kafka://host:0"),
        ("--allowed-origin", "nowhere"),
    ],
)
def test_a_bad_setting_is_one_line_and_starts_nothing(runs: list[Config], arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(command.main, ["serve", *arguments])
    assert (done.exit_code, runs, done.stdout) == (2, [], "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("sluice: ") and arguments[1] in line


def test_an_unknown_flag_is_refused(runs: list[Config]) -> None:
    done = CliRunner().invoke(command.main, ["serve", "--lisener", "x"])
    assert (done.exit_code, runs) == (2, [])
    assert "No such option" in done.stderr


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "app.version.VERSION"}
    assert VERSION in CliRunner().invoke(command.main, ["--version"]).output


def test_help_names_the_commands() -> None:
    output = CliRunner().invoke(command.main, ["--help"]).output
    assert "serve" in output and "openapi" in output


def test_openapi_is_written_printed_and_compared(tmp_path: Path) -> None:
    file = tmp_path / "new" / "openapi.json"
    run = CliRunner().invoke
    assert run(command.main, ["openapi", "--check", "--output", str(file)]).exit_code == 1
    assert run(command.main, ["openapi", "--output", str(file)]).exit_code == 0
    assert run(command.main, ["openapi", "--check", "--output", str(file)]).exit_code == 0
    assert run(command.main, ["openapi", "--stdout"]).output == file.read_text()
    file.write_text(file.read_text().replace("3.1.0", "3.0.0"))
    assert run(command.main, ["openapi", "--check", "--output", str(file)]).exit_code == 1
    assert run(command.main, ["openapi", "--output", str(file / "below")]).exit_code == 1


async def lifespan(app: Any) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({"type": "lifespan"}, receive, send)
    return sent


async def test_any_asgi_server_can_run_the_application(tmp_path: Path) -> None:
    sent = await lifespan(create_app(config_for(tmp_path / "data")))
    assert [m["type"] for m in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_start_that_fails_is_told_to_the_asgi_server(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (message,) = await lifespan(create_app(config_for(tmp_path / "file")))
    assert message["type"] == "lifespan.startup.failed"
    assert "cannot be written" in message["message"]
    json.dumps(message)
