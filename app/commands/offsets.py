"""`sluice offsets`: what groups have committed, and a topic's offsets by time."""

from __future__ import annotations

import re
from typing import Any

import click

from app.commands.bounds import bounds_of, isolation, offsets_at
from app.commands.client import group_path, segment, topic_path
from app.commands.errors import CommandError
from app.commands.moments import FORMS, Moment, MomentType
from app.commands.options import ISOLATION, Session, TopicName, gateway, partition_list
from app.commands.output import Cell
from app.commands.text import counted

_POSITION = re.compile(r"(.+):([0-9]{1,10})=([0-9]{1,19})")


@click.group()
def offsets() -> None:
    """Committed offsets of groups; a topic's offsets by time."""


@offsets.command("get")
@click.argument("group")
@click.option("-t", "--topic", "topics", multiple=True, type=TopicName(), help="Only this; repeatable.")
@gateway
def get_offsets(session: Session, group: str, topics: tuple[str, ...]) -> None:
    """Show what a group has committed: in each partition the next offset that it will read."""
    client, out = session
    found = client.get(f"{group_path(group)}/offsets")
    items = [one for one in found["offsets"] if not topics or one["topic"] in topics]
    rows: list[list[Cell]] = [
        [i["topic"], i["partition"], i["next_offset"], i["committed"], i["metadata"]] for i in items
    ]
    columns = ("TOPIC", "PARTITION", "NEXT OFFSET", "COMMITTED", "METADATA")
    out.listing({"group_id": group, "offsets": items}, columns, rows)


@offsets.command("set")
@click.argument("group")
@click.argument("positions", metavar="TOPIC:PARTITION=OFFSET...", nargs=-1, required=True)
@gateway
def set_offsets(session: Session, group: str, positions: tuple[str, ...]) -> None:
    """Commit offsets for a group without members, all or none: the next offsets that it will read.

    \b
      sluice offsets set billing orders:0=1500 orders:1=1480

    The target of `sluice groups reset`: a time, an end, or a number of offsets.
    """
    client, out = session
    wanted = [_position(text) for text in positions]
    client.send("PATCH", f"{group_path(group)}/offsets", body={"offsets": wanted})
    text = f"Group {group}: {counted(len(wanted), 'offset')} set."
    out.result({"group_id": group, "offsets": wanted}, text)


def _position(text: str) -> dict[str, Any]:
    match = _POSITION.fullmatch(text)
    if match is None or int(match[3]) > 2**63 - 1 or int(match[2]) > 2**31 - 1:
        raise click.BadParameter(f"{text!r} is not like orders:0=1500.", param_hint="TOPIC:PARTITION=OFFSET")
    return {"topic": match[1], "partition": int(match[2]), "next_offset": int(match[3])}


@offsets.command("delete")
@click.argument("group")
@click.argument("topic", type=TopicName())
@click.option("-p", "--partition", "partitions", metavar="LIST", help="Only these, such as 0,2-5.")
@gateway
def delete_offsets(session: Session, group: str, topic: str, partitions: str | None) -> None:
    """Forget what a group has committed in a topic that none of its members reads."""
    client, out = session
    path = f"{group_path(group)}/offsets/{segment(topic)}"
    numbers = partition_list(partitions)
    known = [
        one["partition"]
        for one in client.get(f"{group_path(group)}/offsets")["offsets"]
        if one["topic"] == topic and (numbers is None or one["partition"] in numbers)
    ]
    if not known:
        raise CommandError(f"Group {group!r} has committed nothing there.")
    if numbers is None:
        client.send("DELETE", path)
    for number in () if numbers is None else known:
        client.send("DELETE", f"{path}/{number}")
    text = f"Group {group}: {counted(len(known), 'offset')} of topic {topic} forgotten."
    out.result({"group_id": group, "topic": topic, "deleted": known}, text)


@offsets.command(
    "at",
    # So that `-10` is a moment and no option.
    context_settings={"ignore_unknown_options": True},
    epilog=f"A moment is one of: {FORMS}. A time gives the first record that is not older; none, where all are.",
)
@click.argument("topic", type=TopicName())
@click.argument("moment", type=MomentType(), default="latest")
@click.option("-p", "--partition", "partitions", metavar="LIST", help="Only these, such as 0,2-5.")
@ISOLATION
@gateway
def offsets_by_time(
    session: Session, topic: str, moment: Moment, partitions: str | None, isolation_level: str
) -> None:
    """Show the offset of each partition of a topic at a MOMENT (default: latest)."""
    client, out = session
    committed = isolation_level == "read_committed"
    detail = session.topic(topic)
    bounds = bounds_of(detail, partition_list(partitions), committed=committed)
    times: dict[int, str | None] = {}
    at: dict[int, int | None]
    if moment.kind in ("earliest", "latest", "time"):
        found = client.get(f"{topic_path(topic)}/offsets", {"at": moment.at, **isolation(committed)})
        times = {p["partition"]: p["timestamp"] for p in found["partitions"]}
        at = {p["partition"]: p["offset"] for p in found["partitions"] if p["partition"] in bounds}
    else:
        at = dict(offsets_at(client, topic, bounds, moment))
    items = [
        {
            "partition": p,
            "offset": offset,
            "timestamp": times.get(p),
            "earliest": bounds[p].earliest,
            "latest": bounds[p].latest,
        }
        for p, offset in at.items()
    ]
    document = {
        "topic": topic,
        "at": moment.at if moment.kind == "time" else moment.kind,
        "partitions": items,
    }
    rows = [[i["partition"], i["offset"], i["timestamp"], i["earliest"], i["latest"]] for i in items]
    out.listing(document, ("PARTITION", "OFFSET", "TIMESTAMP", "EARLIEST", "LATEST"), rows)
