"""`sluice move`: from the embedded broker to a Kafka cluster, with records, groups and managed consumers.

docs/guides/move.md has the whole way. Only `freeze` and `thaw` call the HTTP API; the others speak the Kafka
protocol to both clusters, and keep a journal in a working directory.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import msgspec

from app.commands.options import Session, gateway
from app.commands.text import counted

# Loaded when a command needs it: it brings the core, and the client of a cluster.
_MOVE = "app.move"
_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
_DIRECTORY = click.Path(path_type=Path, file_okay=False)
_DATA_DIRECTORY = click.Path(path_type=Path, file_okay=False, exists=True)
# Differences that are printed of one kind.
_SHOWN = 20


@click.group()
def move() -> None:
    """Move to a Kafka cluster: copy topics, compare them, take groups, consumers and keys along."""


def _options(*, source: bool = True) -> Callable[[Any], Any]:
    """Add the options that all commands of a move have; the command gets a `Move` as `move`."""

    def add(function: Any) -> Any:
        @functools.wraps(function)
        def with_move(*args: Any, **given: Any) -> None:
            made = import_module(_MOVE)
            place = made.Place(given.pop("source", "127.0.0.1:9092"), given.pop("source_config", None))
            to, to_config = given.pop("target"), given.pop("target_config")
            target = None if to is None else made.Place(to, to_config)
            topics = tuple(
                one.strip() for text in given.pop("topics") for one in text.split(",") if one.strip()
            )
            logging.basicConfig(level=logging.WARNING, format="sluice: %(message)s")
            function(*args, move=made.Move(place, target, given.pop("work_dir"), topics), **given)

        for option in (
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
            click.option(
                "--topics", multiple=True, metavar="NAME,…", help="Only these topics; * is any characters."
            ),
            click.option(
                "--work-dir", type=_DIRECTORY, default=Path("sluice-move"), show_default=True, metavar="DIR",
                help="Where the journal of the move is.",
            ),
            click.option(
                "--to-config", "target_config", type=_FILE, metavar="FILE",
                help="Kafka client properties for the target: security.protocol, sasl.…, ssl.….",
            ),
            click.option("--to", "target", metavar="HOST:PORT,…", help="Brokers of the target."),
        ):  # fmt: skip
            with_move = option(with_move)
        if source:
            with_move = click.option(
                "--from-config", "source_config", type=_FILE, metavar="FILE", help="The same for the source."
            )(with_move)
            with_move = click.option(
                "--from", "source", default="127.0.0.1:9092", show_default=True, metavar="HOST:PORT,…",
                help="The Kafka port of the source.",
            )(with_move)  # fmt: skip
        return with_move

    return add


@move.command()
@click.option("--follow", is_flag=True, help="Copy what comes, until Ctrl-C or SIGTERM.")
@click.option(
    "--replication-factor",
    type=int,
    default=-1,
    metavar="N",
    help="Of new topics; else the target's default.",
)
@click.option(
    "--skip-config", "skipped", multiple=True, metavar="NAME", help="Leave out a setting of topics."
)
@_options()
def copy(move: Any, follow: bool, replication_factor: int, skipped: Sequence[str], as_json: bool) -> None:
    """Copy topics with their partitions, settings and batches. Started again, it continues.

    Run it with --follow while the source takes records, and once more after the freeze.
    """
    made = import_module(_MOVE)
    if follow and not as_json:
        click.echo("sluice: copying; Ctrl-C ends it, and the next start continues", err=True)

    def report(lags: Sequence[Any], copied: int) -> None:
        left = sum(one.source_end - one.source_next for one in lags)
        click.echo(f"sluice: {counted(copied, 'record')} copied, {left:,} offsets to go", err=True)

    options = made.CopyOptions(replication_factor, frozenset(skipped))
    lags, copied = made.copy(move, options, follow=follow, report=report)
    if as_json:
        _print({"copied": copied, "partitions": [_lag(one) for one in lags]})
        return
    click.echo(
        f"{counted(copied, 'record')} copied; {counted(len(lags), 'partition')} of the source are on the target."
    )
    for one in lags:
        if one.open_records:
            click.echo(
                f"{one.tp}: {counted(one.open_records, 'offset')} after an open transaction are not copied yet."
            )


def _lag(one: Any) -> dict[str, Any]:
    return {
        "topic": one.tp.topic,
        "partition": one.tp.partition,
        "source_next_offset": one.source_next,
        "target_next_offset": one.target_next,
        "lag": one.source_end - one.source_next,
        "open": one.open_records,
    }


@move.command()
@click.option("--no-groups", is_flag=True, help="Do not compare committed offsets.")
@_options()
def verify(move: Any, no_groups: bool, as_json: bool) -> None:
    """Compare source and target: records, order, offsets, groups. Exit 0: equal, 1: different, 2: cannot tell."""
    report = import_module(_MOVE).compare(move, groups=not no_groups)
    if as_json:
        _print(_report(report))
    else:
        _say(report)
    if not report.equal:
        raise click.exceptions.Exit(1)


def _say(report: Any) -> None:
    for text in report.topics:
        click.echo(text)
    for one in report.partitions:
        if one.equal:
            offsets = "the same offsets" if one.same_offsets else "translated offsets"
            more = f", {one.compacted:,} more that the source has compacted since" if one.compacted else ""
            click.echo(
                f"{one.tp}: {counted(one.source.records, 'record')}, CRC {one.source.crc:08x}, {offsets}{more}"
            )
        else:
            click.echo(
                f"{one.tp}: DIFFERENT: {one.difference} (source {one.source.records:,} records, CRC "
                f"{one.source.crc:08x}; target {one.target.records:,}, {one.target.crc:08x})"
            )
    for one in report.groups[:_SHOWN]:
        found = "nothing" if one.found is None else one.found
        click.echo(f"Group {one.group}, {one.tp}: DIFFERENT: committed is {found}, not {one.wanted}")
    if len(report.groups) > _SHOWN:
        click.echo(f"… and {len(report.groups) - _SHOWN} more offsets of groups")
    click.echo("Equal." if report.equal else "Different.")


def _report(report: Any) -> dict[str, Any]:
    def side(one: Any) -> dict[str, Any]:
        return {"records": one.records, "crc": f"{one.crc:08x}"}

    return {
        "equal": report.equal,
        "topics": report.topics,
        "partitions": [
            {
                "topic": one.tp.topic, "partition": one.tp.partition, "equal": one.equal,
                "source": side(one.source), "target": side(one.target), "same_offsets": one.same_offsets,
                "compacted": one.compacted, "difference": one.difference,
            }
            for one in report.partitions
        ],
        "groups": [
            {
                "group": one.group, "topic": one.tp.topic, "partition": one.tp.partition, "wanted": one.wanted,
                "found": one.found,
            }
            for one in report.groups
        ],
    }  # fmt: skip


@move.command()
@click.option("--group", "chosen", multiple=True, metavar="NAME", help="Only this group; repeat it for more.")
@click.option(
    "--data-dir", type=_DATA_DIRECTORY, metavar="DIR",
    help="Read the offsets in the data directory of the source, which is stopped, with the positions of consumers.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would be committed, and commit nothing.")
@_options()
def groups(move: Any, chosen: Sequence[str], data_dir: Path | None, dry_run: bool, as_json: bool) -> None:
    """Commit the offsets of groups on the target, translated. A group with members there is refused."""
    plans, count = import_module(_MOVE).groups(move, chosen, data_dir=data_dir, dry_run=dry_run)
    if as_json:
        _print({"committed": count, "groups": [_group(one) for one in plans]})
    else:
        for plan in plans:
            if plan.refusal:
                click.echo(f"{plan.group}: REFUSED: {plan.refusal}")
            for one in plan.offsets:
                before = "nothing" if one.before is None else one.before
                click.echo(f"{plan.group}  {one.tp}: {one.source} → {one.target} (the target has {before})")
            for tp in plan.left_out:
                click.echo(f"{plan.group}  {tp}: left out, the topic is not moved")
        what = "would be committed" if dry_run else "committed"
        wanted = sum(one.target != one.before for plan in plans if not plan.refusal for one in plan.offsets)
        click.echo(
            f"{counted(wanted if dry_run else count, 'offset')} {what}, of {counted(len(plans), 'group')}."
        )
    if any(plan.refusal for plan in plans):
        raise click.exceptions.Exit(1)


def _group(plan: Any) -> dict[str, Any]:
    return {
        "group": plan.group,
        "refused": plan.refusal or None,
        "offsets": [
            {
                "topic": one.tp.topic, "partition": one.tp.partition, "source": one.source, "target": one.target,
                "before": one.before,
            }
            for one in plan.offsets
        ],
        "left_out": [{"topic": tp.topic, "partition": tp.partition} for tp in plan.left_out],
    }  # fmt: skip


@move.command()
@click.option(
    "--data-dir",
    type=_DATA_DIRECTORY,
    required=True,
    metavar="DIR",
    help="The data directory of the source, which is stopped.",
)
@click.option(
    "--gateway-dir", type=_DIRECTORY, required=True, metavar="DIR",
    help="The data directory of the gateway over the target; it has no state yet.",
)  # fmt: skip
@click.option(
    "--drop-half-done",
    is_flag=True,
    help="Give up writes under a key that ended half-way: a retry writes them again.",
)
@_options(source=False)
def consumers(move: Any, data_dir: Path, gateway_dir: Path, drop_half_done: bool, as_json: bool) -> None:
    """Copy managed consumers, keys with their answers, users, tokens and rules to a gateway over the target."""
    moved = import_module(_MOVE).consumers(move, data_dir, gateway_dir, drop_half_done=drop_half_done)
    if as_json:
        _print(moved._asdict())
        return
    click.echo(
        f"{counted(moved.consumers, 'consumer')} ({moved.outstanding} with a batch outstanding), "
        f"{counted(moved.keys, 'key')} with answers, {counted(moved.users, 'user')}."
    )
    if moved.dropped_keys:
        click.echo(
            f"{counted(moved.dropped_keys, 'key')} without an answer left out: a retry is a new write."
        )


@move.command()
@_options(source=False)
def finish(move: Any, as_json: bool) -> None:
    """Give the topics of the target their own settings for retention, compaction and time stamps."""
    names = import_module(_MOVE).finish(move)
    if as_json:
        _print({"topics": names})
    else:
        click.echo(f"{counted(len(names), 'topic')} have the settings of the source.")


@move.command()
@gateway
def freeze(session: Session) -> None:
    """Let the source refuse writes, with 503 or an error that Kafka clients retry; reads are served."""
    _show_freeze(session, "freeze")


@move.command()
@gateway
def thaw(session: Session) -> None:
    """Let the source take writes again: the way back before the cut-over."""
    _show_freeze(session, "thaw")


def _show_freeze(session: Session, what: str) -> None:
    answer = session.client.send("POST", f"/cluster:{what}").data
    if session.out.as_json:
        session.out.write(msgspec.json.encode(answer) + b"\n")
    elif answer["frozen"]:
        session.out.say(f"Frozen since {answer['since']}: writes are refused, reads are served.")
    else:
        session.out.say("Writes are taken.")


def _print(document: object) -> None:
    click.echo(msgspec.json.encode(document).decode())
