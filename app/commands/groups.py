"""`sluice groups`: list, describe, lag, reset, delete."""

from __future__ import annotations

import time
from typing import Any

import click

from app.commands.client import group_path
from app.commands.errors import CommandError, RefusedError, UnreachableError
from app.commands.moments import FORMS, Moment, MomentType
from app.commands.options import YES, Session, confirm, gateway
from app.commands.output import Cell, Output
from app.commands.text import counted, owned

STATES = click.Choice(
    ["stable", "empty", "dead", "preparingrebalance", "completingrebalance", "assigning", "reconciling"],
    case_sensitive=False,
)
TYPES = click.Choice(["classic", "consumer", "share", "kafka07-zookeeper"], case_sensitive=False)


@click.group()
def groups() -> None:
    """Consumer groups: members, lag, reset, delete."""


@groups.command("list")
@click.argument("prefix", default="")
@click.option("-s", "--state", "states", multiple=True, type=STATES, help="Only these; repeatable.")
@click.option("-t", "--type", "types", multiple=True, type=TYPES, help="Only these; repeatable.")
@click.option("-l", "--long", is_flag=True, help="Also members and lag; asks twice for each group.")
@gateway
def list_groups(
    session: Session, prefix: str, states: tuple[str, ...], types: tuple[str, ...], long: bool
) -> None:
    """List the consumer groups, or those whose ids begin with PREFIX."""
    client, out = session
    items = []
    query = {"prefix": prefix or None, "state": ",".join(states) or None, "type": ",".join(types) or None}
    for item in client.pages("/groups", query):
        if long:
            try:
                detail = client.get(group_path(item["group_id"]))
                lag = client.get(f"{group_path(item['group_id'])}/lag")
            except RefusedError as error:
                if error.status == 404:
                    continue  # gone since the list was read
                raise
            item |= {"members": len(detail["members"]), "total_lag": lag["total_lag"]}
        items.append(item)
    if out.as_json:
        out.document(items)
    elif long:
        rows = [
            [i["group_id"], i["state"], i["type"], i["members"], i["total_lag"], i["protocol_type"]]
            for i in items
        ]
        out.table(("GROUP", "STATE", "TYPE", "MEMBERS", "LAG", "PROTOCOL TYPE"), rows)
    else:
        out.table(
            ("GROUP", "STATE", "TYPE", "PROTOCOL TYPE"),
            [[i["group_id"], i["state"], i["type"], i["protocol_type"]] for i in items],
        )


@groups.command("describe")
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@gateway
def describe_groups(session: Session, names: tuple[str, ...]) -> None:
    """Show groups: state, members and what they own, committed offsets and lag."""
    client, out = session
    documents = []
    for name in names:
        detail, lag = client.get(group_path(name)), client.get(f"{group_path(name)}/lag")
        documents.append(detail | {"total_lag": lag["total_lag"], "partitions": lag["partitions"]})
    out.descriptions(documents, lambda document: _show(out, document))


def _show(out: Output, group: dict[str, Any]) -> None:
    out.heading(f"Group {group['group_id']}")
    assignment_epoch = group.get("assignment_epoch")
    out.facts(
        (
            ("state", group["state"]),
            ("type", group["type"]),
            ("generation" if assignment_epoch is None else "epoch", group["generation_id"]),
            *(() if assignment_epoch is None else (("assignment epoch", assignment_epoch),)),
            ("assignor", group["protocol"]),
            ("members", len(group["members"])),
            ("lag", group["total_lag"]),
        )
    )
    if group["members"]:
        out.say()
        _members_table(out, group)
    if group["partitions"]:
        out.say()
        _lag_table(out, group)


def _members_table(out: Output, group: dict[str, Any]) -> None:
    """The members; of those to which the broker assigns also the epoch, and what they will own if that is more."""
    assigned = group.get("assignment_epoch") is not None
    rows: list[list[Cell]] = []
    for member in group["members"]:
        leads = member["member_id"] == group["leader_id"]
        row: list[Cell] = [
            member["member_id"] + (" (leader)" if leads else ""),
            member["group_instance_id"],
            member["client_id"],
            member["client_host"],
            owned(member["partitions"]),
        ]
        if assigned:
            target = owned(member["target"] or ())
            row += [target if target != row[-1] else None, member["epoch"], member["kind"]]
        rows.append(row)
    more = ("TARGET", "EPOCH", "KIND") if assigned else ()
    out.table(("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS", *more), rows)


def _lag_table(out: Output, lag: dict[str, Any]) -> None:
    rows: list[list[Cell]] = [
        [p["topic"], p["partition"], p["next_offset"], p["high_watermark"], p["lag"], p["member_id"]]
        for p in lag["partitions"]
    ]
    out.table(("TOPIC", "PARTITION", "COMMITTED", "LATEST", "LAG", "MEMBER"), rows)


@groups.command("lag")
@click.argument("name", metavar="GROUP")
@click.option("-w", "--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@click.option("-i", "--interval", type=click.FloatRange(0.1), default=2.0, show_default="2", metavar="SECONDS",
              help="With --watch: how often.")  # fmt: skip
@gateway
def group_lag(session: Session, name: str, watch: bool, interval: float) -> None:
    """Show the lag of a group, in each partition and in total."""
    client, out = session
    path = f"{group_path(name)}/lag"
    if not watch:
        lag = client.get(path)
        if out.as_json:
            out.document(lag)
        else:
            _lag_table(out, lag)
            out.say(f"Lag of {name}: {counted(lag['total_lag'], 'record')}.")
        return
    try:
        _watch(session, name, path, interval)
    except KeyboardInterrupt:
        return


def _watch(session: Session, name: str, path: str, seconds: float) -> None:
    """A line (or an NDJSON document, or a fresh screen on a terminal) every N seconds."""
    client, out = session
    before: tuple[float, int] | None = None
    if not out.as_json and not out.terminal:
        out.say(f"{'TIME':<20}  {'LAG':>12}  {'CHANGE':>12}")
    while True:
        try:
            lag = client.get(path)
        except UnreachableError as error:
            if before is None:
                raise
            out.note(error.text)
            time.sleep(seconds)
            continue
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        total = lag["total_lag"]
        rate = "" if before is None else f"{(total - before[1]) / (now - before[0]):+,.1f}/s"
        if out.as_json:
            out.json_line({"time": stamp, **lag})
        elif out.terminal:
            out.clear_screen()
            out.say(f"{stamp}  lag of {name}: {counted(total, 'record')}  {rate}")
            out.say()
            _lag_table(out, lag)
        else:
            out.say(f"{stamp}  {total:>12}  {rate:>12}")
        out.flush()
        before = (now, total)
        time.sleep(seconds)


@groups.command("reset")
@click.argument("name", metavar="GROUP")
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC",
              help="Only this topic; repeatable. Default: all that the group has read.")  # fmt: skip
@click.option("--to", "moment", type=MomentType("earliest", "latest", "offset", "time"), metavar="MOMENT",
              help=f"Where to go: {FORMS.replace('-N (N before the end), ', '')}.")  # fmt: skip
@click.option("--shift", type=int, metavar="N", help="N offsets forward, or back with -N.")
@click.option(
    "--execute", is_flag=True, help="Do it. Without it, before and after are shown, and nothing changes."
)
@gateway
def reset_group(
    session: Session,
    name: str,
    topics: tuple[str, ...],
    moment: Moment | None,
    shift: int | None,
    execute: bool,
) -> None:
    """Move the committed offsets of a group whose consumers are stopped. Shows what it would do, unless --execute."""
    client, out = session
    if (moment is None) == (shift is None):
        raise click.UsageError("Say where to go: either --to or --shift.")
    body: dict[str, Any] = {"dry_run": not execute}
    if topics:
        body["topics"] = list(topics)
    if moment is None:
        body["shift"] = shift
    elif moment.kind in ("earliest", "latest"):
        body["to"] = moment.kind
    else:
        body[moment.kind] = moment.value
    result = client.send("POST", f"{group_path(name)}/offsets:reset", body=body).data
    if out.as_json:
        out.document(result)
        return
    rows: list[list[Cell]] = [
        [p["topic"], p["partition"], p["before"], p["after"], _difference(p)] for p in result["offsets"]
    ]
    out.table(("TOPIC", "PARTITION", "BEFORE", "AFTER", "CHANGE"), rows)
    if not rows:
        out.say(f"Group {name} has no committed offsets; --topic names topics to set them for.")
    elif execute:
        out.say(f"Group {name}: {counted(len(rows), 'offset')} set.")
    else:
        out.say("A dry run: nothing was changed. --execute does it.")


def _difference(reset: dict[str, Any]) -> str | None:
    return None if reset["before"] is None else f"{reset['after'] - reset['before']:+d}"


@groups.command("delete")
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="No failure when there is no such group.")
@YES
@gateway
def delete_groups(session: Session, names: tuple[str, ...], if_exists: bool, yes: bool) -> None:
    """Delete groups without members, and their committed offsets, for good."""
    out = session.out
    names = tuple(dict.fromkeys(names))
    confirm(f"Delete group {', '.join(names)} with all committed offsets?", yes=yes, what="delete")
    deleted: list[str] = []
    missing: list[str] = []
    try:
        for name in names:
            _delete(session, name, if_exists=if_exists, deleted=deleted, missing=missing)
    except CommandError as error:
        if deleted:
            error.hints = (*error.hints, f"Deleted before that: {', '.join(deleted)}.")
        raise
    if out.as_json:
        out.document({"deleted": deleted, "missing": missing})
    else:
        for name in names:
            out.say(f"Group {name} " + ("deleted." if name in deleted else "was not there."))


def _delete(session: Session, name: str, *, if_exists: bool, deleted: list[str], missing: list[str]) -> None:
    try:
        session.client.send("DELETE", group_path(name))
        deleted.append(name)
    except RefusedError as error:
        if error.status != 404 or not if_exists:
            raise
        missing.append(name)
