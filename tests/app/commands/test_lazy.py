"""The commands cost nothing until they are called."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from app.__main__ import main
from app.commands.lazy import COMMANDS
from tests.broker_process import ROOT

# What only a client needs, and what only a server needs.
CLIENT_MODULES = ("httpx", "app.commands.client", "app.commands.topics", "app.commands.output")
SERVER_MODULES = ("fastapi", "pydantic", "sqlalchemy", "uvicorn", "core.server")


def _loaded(arguments: list[str], modules: tuple[str, ...]) -> set[str]:
    code = (
        "import sys\nfrom app.__main__ import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        f"print('LOADED', *[m for m in {modules!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["--version"]])
def test_serve_and_help_load_no_client(arguments: list[str]) -> None:
    assert _loaded(arguments, CLIENT_MODULES + SERVER_MODULES) == set()


def test_help_of_a_command_loads_no_http_and_no_server() -> None:
    assert _loaded(["topics", "list", "--help"], ("httpx", *SERVER_MODULES)) == set()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listener", "bogus"], "'bogus' is not scheme://host:port"),
        (["--lisener", "x"], "Usage: sluice serve"),
        (["--data-dir"], "Option '--data-dir' requires an argument"),
    ],
)
def test_options_without_a_command_are_those_of_serve(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(main, arguments, prog_name="sluice")
    assert done.exit_code == 2 and said in done.output


def test_all_commands_stand_in_the_help() -> None:
    shown = CliRunner().invoke(main, ["--help"]).output
    for name, lazy in COMMANDS.items():
        assert f"  {name} " in shown and lazy.help in shown
    assert "  serve " in shown and "  openapi " in shown


def test_every_lazy_command_is_there_under_its_name() -> None:
    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None and command.name == name


def test_an_unknown_command_is_wrong_usage() -> None:
    assert CliRunner().invoke(main, ["topic", "list"]).exit_code == 2


def _commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        return [(path, command)]
    context = click.Context(command)
    return [
        found
        for name in command.list_commands(context)
        if (one := command.get_command(context, name)) is not None
        for found in _commands(one, (*path, name))
    ]


def test_every_command_says_what_it_does_and_takes_url_and_json() -> None:
    for path, command in _commands(main):
        if path[0] in COMMANDS:
            assert command.help, path
            if path[0] == "spark":
                continue  # another program: it has its own options, and no URL
            options = {o for p in command.params for o in p.opts}
            # A move speaks to two clusters over their Kafka ports; only the freeze is a call of a gateway.
            clusters = path[0] == "move" and path[1] not in ("freeze", "thaw")
            assert {"--to" if clusters else "--url", "--json"} <= options, path
            undocumented = [p.opts for p in command.params if isinstance(p, click.Option) and not p.help]
            assert undocumented == [], path
