"""docs/reference/cli.md and jobs.md: the help of each command, as the terminal shows it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import click

from app.reference.markdown import cell, fence, table

_WIDTH = 100
_COMMANDS = """\
# Command line

Written by `sluice docs` from the code. The [guide](../guides/cli.md) has examples. [Job options](jobs.md) has the
options of `sluice spark run`.
"""
_JOBS = """\
# Job options

Written by `sluice docs` from the code: the options of `sluice spark run JOB`. In a YAML file an option has the same
name with `_` for `-`, and repeated options are lists. The [jobs](../spark/jobs/README.md) have a page each.
"""


def page(root: click.Command) -> str:
    """Return the page of all commands below `root`, the one without hidden ones."""
    parts = [_COMMANDS]
    for context, command in _walk(root, _context(root, "sluice")):
        parts.append(f"\n## {context.command_path}\n{fence(command.get_help(context))}")
    return "".join(parts)


def _walk(command: click.Command, context: click.Context) -> Iterator[tuple[click.Context, click.Command]]:
    yield context, command
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        if below is not None and not below.hidden:
            yield from _walk(below, _context(below, name, context))


def _context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    return click.Context(
        command,
        parent,
        name,
        **{**command.context_settings, "terminal_width": _WIDTH, "max_content_width": _WIDTH},
    )


def jobs_page() -> str:
    """Return the page of the options of all jobs."""
    # The pipeline is another program: it is loaded by name, for this page alone, and only its flags are read.
    group = import_module("pipeline.command.group").spark
    run = group.commands["run"]
    context = click.Context(run, info_name="run")
    parts = [_JOBS]
    for name in run.list_commands(context):
        command = run.get_command(context, name)
        rows = [
            (
                ", ".join(f"`{flag}`" for flag in option.opts),
                getattr(option, "help", None) or "",
                _choices(option),
            )
            for option in command.params
        ]
        parts.append(
            f"\n## {name}\n{cell(command.help or '')}\n\n{table(('option', 'meaning', 'values'), rows)}"
        )
    return "".join(parts)


def _choices(option: click.Parameter) -> str:
    return (
        ", ".join(f"`{one}`" for one in option.type.choices) if isinstance(option.type, click.Choice) else ""
    )
