"""`sluice topics`: list, describe, create, alter, truncate, delete."""

from __future__ import annotations

from typing import Any

import click

from app.commands.bounds import Bounds, bounds_of, offsets_at
from app.commands.client import topic_path
from app.commands.errors import CommandError, RefusedError
from app.commands.moments import FORMS, Moment, MomentType
from app.commands.options import YES, Session, TopicName, confirm, gateway, partition_list, settings
from app.commands.output import Cell
from app.commands.text import counted, duration, ranges, size

_UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"


@click.group()
def topics() -> None:
    """List, describe, create, alter, truncate and delete topics."""


@topics.command("list")
@click.argument("prefix", default="", type=TopicName())
@click.option("-l", "--long", is_flag=True, help="Also records and sizes; asks once for each topic.")
@click.option("--internal", is_flag=True, help="Also the broker's own topics.")
@gateway
def list_topics(session: Session, prefix: str, long: bool, internal: bool) -> None:
    """List the topics, or those whose names begin with PREFIX."""
    client, out = session
    items: list[dict[str, Any]] = []
    for item in client.pages("/topics", {"prefix": prefix or None, "include_internal": internal}):
        if not long:
            items.append(item)
            continue
        try:
            detail = client.get(topic_path(item["name"]))
        except RefusedError as error:
            if error.problem.get("kafka_error") == _UNKNOWN:
                continue  # deleted since the list was read
            raise
        items.append(item | {"records": _records(detail), "size_bytes": _size(detail)})
    if out.as_json:
        out.document(items)
    elif long:
        rows = [
            [i["name"], i["partitions"], i["records"], size(i["size_bytes"]), _overrides(i)] for i in items
        ]
        out.table(("TOPIC", "PARTITIONS", "RECORDS", "SIZE", "SETTINGS"), rows)
    else:
        out.table(
            ("TOPIC", "PARTITIONS", "SETTINGS"), [[i["name"], i["partitions"], _overrides(i)] for i in items]
        )


@topics.command("describe")
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True, type=TopicName())
@click.option("-a", "--all", "everything", is_flag=True, help="All settings, not only those that were set.")
@gateway
def describe_topics(session: Session, names: tuple[str, ...], everything: bool) -> None:
    """Show topics: partitions with earliest and latest offset and size, settings and where they come from."""
    details = [session.topic(name) for name in names]
    session.out.descriptions(details, lambda detail: _show(session, detail, everything))


def _show(session: Session, detail: dict[str, Any], everything: bool) -> None:
    out = session.out
    out.heading(f"Topic {detail['name']}")
    out.facts(
        (
            ("id", detail["topic_id"]),
            ("created", detail["created"]),
            ("partitions", detail["partitions"]),
            ("records", _records(detail)),
            ("size", size(_size(detail))),
        )
    )
    out.say()
    rows: list[list[Cell]] = [
        [p["partition"], p["earliest"], p["latest"], p["latest"] - p["earliest"], size(p["size_bytes"])]
        for p in detail["partition_details"]
    ]
    out.table(("PARTITION", "EARLIEST", "LATEST", "RECORDS", "SIZE"), rows)
    held = {p["partition"]: p["high_watermark"] - p["latest"] for p in detail["partition_details"]}
    if any(held.values()):
        partitions = ranges(partition for partition, offsets in held.items() if offsets)
        out.say(
            f"Open transactions hold up {counted(sum(held.values()), 'offset')} of partition {partitions}."
        )
    configs = detail["effective_configs"]
    shown = {n: c for n, c in configs.items() if everything or c["source"] != "default"}
    out.say()
    if shown:
        cells = [[n, c["value"], _meaning(n, c["value"]), c["source"]] for n, c in sorted(shown.items())]
        out.table(("SETTING", "VALUE", "", "SOURCE"), cells)
    hidden = len(configs) - len(shown)
    if hidden:
        more = "more settings have" if shown else "settings have"
        out.say(f"{hidden} {more} their defaults; --all shows them.")


@topics.command("create")
@click.argument("name", metavar="TOPIC")
@click.option("-p", "--partitions", type=click.IntRange(1), help="How many; default: as the broker is set.")
@click.option("-c", "--config", "configs", metavar="NAME=VALUE", multiple=True, help="A setting; repeatable.")
@click.option("--if-not-exists", is_flag=True, help="No failure when it is there already.")
@click.option("--dry-run", is_flag=True, help="Check everything and create nothing.")
@gateway
def create_topic(
    session: Session,
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create a topic."""
    client, out = session
    body: dict[str, Any] = {}
    if partitions is not None:
        body["partitions"] = partitions
    if configs:
        body["configs"] = settings(configs, "--config")
    if dry_run:
        # A dry run answers 200 whether or not the topic is there.
        existing = _existing(session, name)
        if existing is not None and not if_not_exists:
            raise _exists(name)
    try:
        answer = client.send("PUT", topic_path(name), params={"validate_only": dry_run}, body=body)
    except RefusedError as error:
        if error.kind != "topic-differs":
            raise
        if not if_not_exists:
            raise _exists(name) from None
        for difference in error.problem.get("errors", ()):
            out.note(f"warning: {name} exists with another shape. {difference.get('detail', '')}")
        detail, created = session.topic(name), False
    else:
        detail, created = answer.data, answer.status == 201
        if not (created or dry_run or if_not_exists):
            raise _exists(name)
    if out.as_json:
        out.document({"created": created, "dry_run": dry_run, "topic": detail})
    elif dry_run:
        out.say(f"Topic {name} could be created, with {counted(detail['partitions'], 'partition')}.")
    else:
        done = "created" if created else "was there already"
        out.say(f"Topic {name} {done}, with {counted(detail['partitions'], 'partition')}.")


def _existing(session: Session, name: str) -> Any | None:
    try:
        return session.client.get(topic_path(name))
    except RefusedError as error:
        if error.status != 404:
            raise
        return None


def _exists(name: str) -> CommandError:
    return CommandError(
        f"Topic {name!r} exists already.",
        "`sluice topics alter` changes it, --if-not-exists takes it as it is.",
    )


@topics.command("alter")
@click.argument("name", metavar="TOPIC", type=TopicName())
@click.option(
    "-p", "--partitions", type=click.IntRange(1), help="Grow to this number; partitions cannot be removed."
)
@click.option("-c", "--config", "configs", metavar="NAME=VALUE", multiple=True, help="A setting; repeatable.")
@click.option("-d", "--delete-config", "deleted", metavar="NAME", multiple=True,
              help="A setting that gets its default again; repeatable.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Check everything and change nothing.")
@gateway
def alter_topic(
    session: Session,
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Change settings of a topic, or give it more partitions: all of it or nothing."""
    client, out = session
    changes: dict[str, str | None] = {**settings(configs, "--config")}
    for setting in deleted:
        if setting in changes:
            raise click.UsageError(f"{setting} stands in --config and in --delete-config.")
        changes[setting] = None
    body: dict[str, Any] = {"configs": changes} if changes else {}
    if partitions is not None:
        body["partitions"] = partitions
    if not body:
        raise click.UsageError("Nothing to change: give --config, --delete-config or --partitions.")
    before = session.topic(name)
    after = client.send("PATCH", topic_path(name), params={"validate_only": dry_run}, body=body).data
    steps = _steps(before, after, changes)
    if out.as_json:
        out.document({"topic": name, "dry_run": dry_run, "changes": steps})
        return
    out.say(f"Topic {name}" + (", if this were not a dry run:" if dry_run else ":"))
    out.table(("SETTING", "BEFORE", "AFTER"), [[s["name"], s["before"], s["after"]] for s in steps])


def _steps(before: Any, after: Any, changes: dict[str, str | None]) -> list[dict[str, Any]]:
    """What changed: the name, and both values as they are in force (or null where only the default is known)."""
    steps = []
    if before["partitions"] != after["partitions"]:
        steps.append({"name": "partitions", "before": before["partitions"], "after": after["partitions"]})
    for name in changes:
        was = before["effective_configs"].get(name, {}).get("value")
        now = after["effective_configs"].get(name, {}).get("value", after["configs"].get(name))
        steps.append({"name": name, "before": was, "after": now})
    return steps


@topics.command("truncate")
@click.argument("name", metavar="TOPIC", type=TopicName())
@click.option("--before", "moment", type=MomentType(), required=True, metavar="MOMENT",
              help=f"Everything before it is deleted: {FORMS}.")  # fmt: skip
@click.option("-p", "--partition", "partitions", metavar="LIST", help="Only these, such as 0,2-5.")
@click.option("--dry-run", is_flag=True, help="Show what would go, and delete nothing.")
@YES
@gateway
def truncate_topic(
    session: Session, name: str, moment: Moment, partitions: str | None, dry_run: bool, yes: bool
) -> None:
    """Delete the oldest records of a topic, for good."""
    client, out = session
    detail = session.topic(name)
    bounds = bounds_of(detail, partition_list(partitions))
    targets = offsets_at(client, name, bounds, moment)
    plan = [
        {
            "partition": p,
            "before_offset": _within(offset, bounds[p], exact=moment.kind == "offset" and bool(partitions)),
        }
        for p, offset in targets.items()
    ]
    path = f"{topic_path(name)}:truncate"
    if not dry_run and not yes:
        planned = client.send("POST", path, body={"partitions": plan, "dry_run": True}).data
        going = sum(p["deleted"] for p in planned["partitions"])
        confirm(f"Delete {counted(going, 'record')} of topic {name} for good?", yes=False, what="truncate")
    done = client.send("POST", path, body={"partitions": plan, "dry_run": dry_run}).data
    if out.as_json:
        out.document(done)
        return
    rows = [
        [p["partition"], p["earliest_before"], p["earliest"], p["latest"], p["deleted"]]
        for p in done["partitions"]
    ]
    out.table(("PARTITION", "EARLIEST BEFORE", "EARLIEST", "LATEST", "DELETED"), rows)
    if dry_run:
        out.say("A dry run: nothing was deleted.")


def _within(offset: int, bounds: Bounds, *, exact: bool) -> int:
    """One offset for all partitions may lie beyond the end of some."""
    return offset if exact else min(offset, bounds.latest)


@topics.command("delete")
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True, type=TopicName())
@click.option("--if-exists", is_flag=True, help="No failure when there is no such topic.")
@YES
@gateway
def delete_topics(session: Session, names: tuple[str, ...], if_exists: bool, yes: bool) -> None:
    """Delete topics with all their records, for good."""
    client, out = session
    deleted, missing = [], []
    details: dict[str, Any] = {}
    for name in dict.fromkeys(names):
        found = _existing(session, name) if if_exists else session.topic(name)
        if found is None:
            missing.append(name)
        else:
            details[name] = found
    for name, detail in details.items():
        holding = f"{counted(_records(detail), 'record')}, {size(_size(detail))}"
        confirm(f"Delete topic {name} ({holding}) for good?", yes=yes, what="delete")
    for name in details:
        client.send("DELETE", topic_path(name))
        deleted.append(name)
        if not out.as_json:
            out.say(f"Topic {name} deleted.")
    if out.as_json:
        out.document({"deleted": deleted, "missing": missing})
    else:
        for name in missing:
            out.say(f"Topic {name} was not there.")


# --- what is shown ------------------------------------------------------------------------------------------


def _records(detail: dict[str, Any]) -> int:
    """The offsets between the ends of all partitions: records, where nothing was compacted away."""
    return sum(p["latest"] - p["earliest"] for p in detail["partition_details"])


def _size(detail: dict[str, Any]) -> int:
    return sum(int(p["size_bytes"]) for p in detail["partition_details"])


def _overrides(item: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in item["configs"].items())


def _meaning(name: str, value: str) -> str:
    """A setting's number in words, where its name tells the unit."""
    if value.isdigit() and int(value) < 2**62:
        if name.endswith(".ms") and int(value) >= 1000:
            return duration(int(value))
        if name.endswith(".bytes") and int(value) >= 1024:
            return size(int(value))
    return ""
