"""Commands that are imported when they are called.

`sluice serve` must not load what only a client needs (an HTTP client, tables, JSON). So the group has the module and
one line of help of each command, and loads the module when the command is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import click


class Lazy(NamedTuple):
    """A command that is not imported yet: the attribute of `module` that is called like it, with `_` for `-`."""

    module: str
    help: str


COMMANDS: dict[str, Lazy] = {
    "topics": Lazy("app.commands.topics", "List, describe, create, alter, truncate and delete topics."),
    "produce": Lazy("app.commands.produce", "Write records: arguments, lines, NDJSON, files."),
    "consume": Lazy("app.commands.consume", "Read records, or follow them as they come."),
    "groups": Lazy("app.commands.groups", "Consumer groups: members, lag, reset, delete."),
    "queues": Lazy("app.commands.queues", "Queues: receive, settle, pause, seek, dead letters."),
    "offsets": Lazy("app.commands.offsets", "Committed offsets of groups; a topic's offsets by time."),
    "transactions": Lazy(
        "app.commands.transactions", "Transactions: list, describe, abort, find hanging ones."
    ),
    "users": Lazy("app.commands.users", "Users and their passwords: create, list, change, delete."),
    "acls": Lazy("app.commands.acls", "Access rules, as kafka-acls has them: list, add, remove."),
    "tokens": Lazy("app.commands.tokens", "Tokens for curl, kcat and Spark: create, list, delete."),
    "quotas": Lazy("app.commands.quotas", "Client quotas: bytes, partitions and connections per second."),
    "move": Lazy("app.commands.move", "Move to a Kafka cluster: records, groups, consumers, keys."),
    "import-groups": Lazy(
        "app.commands.import_groups", "Take over groups.json and offsets.json of another broker."
    ),
    "spark": Lazy("app.commands.spark", "Jobs at scale on Spark: tables, replays, aggregates, checks."),
}

# What the group takes itself.
_OWN_OPTIONS = ("-h", "--help", "--version")


class LazyGroup(click.Group):
    """A group whose own commands are there at once, and those of `COMMANDS` when they are called."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options without a command are those of `serve`, which is what runs without one."""
        if args and args[0].startswith("-") and args[0] not in _OWN_OPTIONS:
            args = ["serve", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; imports its module."""
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return super().get_command(ctx, cmd_name)
        command = getattr(import_module(lazy.module), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in the help; imports nothing."""
        rows = []
        for name in self.list_commands(ctx):
            if name in COMMANDS:
                rows.append((name, COMMANDS[name].help))
            elif (command := super().get_command(ctx, name)) is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(limit=formatter.width)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)
