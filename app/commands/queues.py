"""`sluice queues`: life, contents, receive and settle, dead letters."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import click
import msgspec

from app.commands.client import queue_path, segment
from app.commands.errors import CommandError, RefusedError
from app.commands.moments import DurationType, Moment, MomentType
from app.commands.options import YES, Session, TopicName, confirm, gateway
from app.commands.output import Cell, Output
from app.commands.text import counted, duration
from app.commands.webhooks import webhooks

DURATION = DurationType()
START = MomentType("earliest", "latest", "time")
# How often a redrive is asked how far it is.
_REDRIVE_SECONDS = 0.2
# The counts of a queue, as a listing and a description show them.
_COUNTS = ("available", "in_flight", "delayed", "archiving")


@click.group()
def queues() -> None:
    """Queues: receive and settle records, look, pause, seek. A queue is a share group."""


queues.add_command(webhooks)

# --- life ---------------------------------------------------------------------------------------------------


@queues.command("list")
@click.argument("prefix", default="")
@gateway
def list_queues(session: Session, prefix: str) -> None:
    """List the queues, or those whose name begins with PREFIX."""
    client, out = session
    items = list(client.pages("/queues", {"prefix": prefix or None}))
    rows: list[list[Cell]] = [
        [one["queue"], _reads(one), *(one[name] for name in _COUNTS), "paused" if one["paused"] else None]
        for one in items
    ]
    out.listing(items, ("QUEUE", "READS", "AVAILABLE", "IN FLIGHT", "DELAYED", "ARCHIVING", "STATE"), rows)


def _reads(one: Mapping[str, Any]) -> str:
    return ", ".join(one["topics"] or ()) or f"pattern {one['pattern']}"


@queues.command("create")
@click.argument("name", metavar="QUEUE")
@click.option("-t", "--topic", "topics", multiple=True, type=TopicName(), metavar="TOPIC",
              help="A topic to read; repeatable.")  # fmt: skip
@click.option("--pattern", metavar="RE2", help="All topics whose whole name it matches, in place of --topic.")
@click.option("--from", "start", type=START, metavar="MOMENT",
              help="Where it begins: earliest, latest (default), a time or an age (15m, 2h).")  # fmt: skip
@click.option("--from-group", metavar="GROUP", help="Begin at the committed offsets of a consumer group.")
@click.option("--lock", "lock_ms", type=DURATION, metavar="DURATION",
              help="For how long received records are the receiver's; default 30s.")  # fmt: skip
@click.option("--delivery-limit", type=click.IntRange(0), metavar="N",
              help="Give a record up after N deliveries; 0: never. Default 5.")  # fmt: skip
@click.option("--backoff", "backoff_ms", type=DURATION, metavar="DURATION",
              help="The pause before the second delivery; it doubles with each, up to 10 minutes.")  # fmt: skip
@click.option("--dead-letter", metavar="TOPIC", help="The topic for records that are given up.")
@click.option("--drop", is_flag=True, help="Drop records that are given up, without a dead-letter topic.")
@click.option(
    "--order", type=click.Choice(["none", "key"]), help="key: one record of a key at a time, in order."
)
@gateway
def create_queue(
    session: Session,
    /,
    name: str,
    topics: tuple[str, ...],
    pattern: str | None,
    start: Moment | None,
    from_group: str | None,
    **settings: Any,
) -> None:
    """Create a queue, or give it these settings. What is not said has its default."""
    if bool(topics) is (pattern is not None):
        raise click.UsageError("Say what it reads: either --topic or --pattern.")
    if start is not None and from_group is not None:
        raise click.UsageError("Say where it begins: either --from or --from-group.")
    body: dict[str, Any] = {"pattern": pattern} if pattern is not None else {"topics": list(topics)}
    if from_group is not None:
        body["start"] = {"group": from_group}
    elif start is not None:
        body["start"] = _start(start)
    for setting in ("lock_ms", "order"):
        if settings[setting] is not None:
            body[setting] = settings[setting]
    if (limit := settings["delivery_limit"]) is not None:
        body["delivery_limit"] = limit or None
    if settings["backoff_ms"] is not None:
        body["backoff"] = {"first_ms": settings["backoff_ms"]}
    if settings["dead_letter"] is not None:
        body["dead_letter"] = {"topic": settings["dead_letter"]}
    if settings["drop"]:
        body["drop"] = True
    answer = session.client.send("PUT", queue_path(name), body=body)
    what = "created" if answer.status == 201 else "has these settings"
    session.out.result(answer.data, f"Queue {name} {what}.")


def _start(moment: Moment) -> str | int:
    return moment.value if moment.kind == "time" else moment.kind


@queues.command("describe")
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@gateway
def describe_queues(session: Session, names: tuple[str, ...]) -> None:
    """Show queues: their settings and their counts."""
    client, out = session
    documents = []
    for name in names:
        path = queue_path(name)
        documents.append(client.get(path) | {"stats": client.get(f"{path}/stats")})
    out.descriptions(documents, lambda document: _show(out, document))


def _show(out: Output, one: Mapping[str, Any]) -> None:
    out.heading(f"Queue {one['queue']}")
    back, dead = one["backoff"], one["dead_letter"]
    start = one["start"]
    limit = one["delivery_limit"]
    out.facts(
        (
            ("reads", _reads(one)),
            ("state", "paused" if one["paused"] else "running"),
            ("begins", f"group {start['group']}" if isinstance(start, dict) else str(start)),
            ("lock", duration(one["lock_ms"])),
            ("delivery limit", "none" if limit is None else limit),
            ("back-off", _backoff(back)),
            ("dead letters", dead["topic"] if dead else "dropped" if one["drop"] else "none"),
            ("order", "by key" if one["order"] == "key" else None),
        )
    )
    out.say()
    _show_counts(out, one["stats"])


def _backoff(back: Mapping[str, Any]) -> str | None:
    if not back["first_ms"]:
        return None
    return f"{duration(back['first_ms'])}, times {back['factor']:g}, up to {duration(back['max_ms'])}"


@queues.command("delete")
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Also while records are leased.")
@click.option("--if-exists", is_flag=True, help="No failure when there is no such queue.")
@YES
@gateway
def delete_queues(session: Session, names: tuple[str, ...], force: bool, if_exists: bool, yes: bool) -> None:
    """Delete queues, with what they know of records. Topics and dead letters stay."""
    out = session.out
    names = tuple(dict.fromkeys(names))
    confirm(f"Delete queue {', '.join(names)}?", yes=yes, what="delete")
    deleted: list[str] = []
    missing: list[str] = []
    try:
        for name in names:
            try:
                session.client.send("DELETE", queue_path(name), params={"force": force})
                deleted.append(name)
            except RefusedError as error:
                if error.status != 404 or not if_exists:
                    raise
                missing.append(name)
    except CommandError as error:
        if deleted:
            error.hints = (*error.hints, f"Deleted before that: {', '.join(deleted)}.")
        raise
    if out.as_json:
        out.document({"deleted": deleted, "missing": missing})
    for name in () if out.as_json else names:
        out.say(f"Queue {name} " + ("deleted." if name in deleted else "was not there."))


@queues.command("pause")
@click.argument("name", metavar="QUEUE")
@gateway
def pause_queue(session: Session, name: str) -> None:
    """Deliver nothing any more. Records that are leased can be settled."""
    answer = session.client.send("POST", f"{queue_path(name)}:pause")
    session.out.result(answer.data, f"Queue {name} is paused.")


@queues.command("resume")
@click.argument("name", metavar="QUEUE")
@gateway
def resume_queue(session: Session, name: str) -> None:
    """Deliver again."""
    answer = session.client.send("POST", f"{queue_path(name)}:resume")
    session.out.result(answer.data, f"Queue {name} delivers again.")


@queues.command("seek")
@click.argument("name", metavar="QUEUE")
@click.option("--to", "start", type=START, metavar="MOMENT",
              help="Where to begin: earliest, latest, a time or an age (15m, 2h).")  # fmt: skip
@click.option("--to-group", metavar="GROUP", help="Begin at the committed offsets of a consumer group.")
@click.option("--force", is_flag=True, help="Also while records are leased; their receipts are void then.")
@gateway
def seek_queue(session: Session, name: str, start: Moment | None, to_group: str | None, force: bool) -> None:
    """Begin at another place in all partitions: replay, or skip."""
    if (start is None) is (to_group is None):
        raise click.UsageError("Say where to begin: either --to or --to-group.")
    body = {"start": {"group": to_group} if start is None else _start(start), "force": force}
    counts = session.client.send("POST", f"{queue_path(name)}:seek", body=body).data
    available = counted(counts["available"], "record")
    session.out.result(counts, f"Queue {name} begins again: {available} available.")


# --- what it holds ------------------------------------------------------------------------------------------


@queues.command("stats")
@click.argument("name", metavar="QUEUE")
@gateway
def queue_stats(session: Session, name: str) -> None:
    """Show the counts of a queue, in all and in each partition."""
    client, out = session
    counts = client.get(f"{queue_path(name)}/stats")
    if out.as_json:
        out.document(counts)
    else:
        _show_counts(out, counts)


def _show_counts(out: Output, counts: Mapping[str, Any]) -> None:
    age = counts["oldest_unsettled_age_ms"]
    out.facts(
        (
            *((name.replace("_", " "), counts[name]) for name in _COUNTS),
            ("oldest not settled", None if age is None else f"{duration(age - age % 1000)} old"),
            ("waiting receivers", counts["waiting_receivers"] or None),
        )
    )
    rows: list[list[Cell]] = [
        [one["topic"], one["partition"], one["start"], one["end"], *(one[name] for name in _COUNTS)]
        for one in counts["partitions"]
    ]
    if rows:
        out.say()
        out.table(
            ("TOPIC", "PARTITION", "START", "END", "AVAILABLE", "IN FLIGHT", "DELAYED", "ARCHIVING"), rows
        )


@queues.command("peek")
@click.argument("name", metavar="QUEUE")
@click.option("-n", "--max", "most", type=click.IntRange(1, 1000), default=10, show_default=True, metavar="N",
              help="Records at most.")  # fmt: skip
@gateway
def peek_queue(session: Session, name: str, most: int) -> None:
    """Show the records that would be delivered next. They are not locked."""
    client, out = session
    records = client.send("POST", f"{queue_path(name)}:peek", body={"max": most}).data["records"]
    rows = [_record(one) for one in records]
    out.listing(records, ("TOPIC", "PARTITION", "OFFSET", "KEY", "VALUE"), rows)


def _record(one: Mapping[str, Any]) -> list[Cell]:
    return [one["topic"], one["partition"], one["offset"], _text(one["key"]), _text(one["value"])]


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


# --- receive and settle -------------------------------------------------------------------------------------


@queues.command("receive")
@click.argument("name", metavar="QUEUE")
@click.option("-n", "--max", "most", type=click.IntRange(1, 1000), default=1, show_default=True, metavar="N",
              help="Records at most.")  # fmt: skip
@click.option("-w", "--wait", "wait_ms", type=DURATION, default=0, metavar="DURATION",
              help="Wait so long for a record; 60s at most. Default: not at all.")  # fmt: skip
@click.option("--lock", "lock_ms", type=DURATION, metavar="DURATION",
              help="For how long the records are yours; default: as the queue says.")  # fmt: skip
@click.option("-t", "--topic", "topics", multiple=True, type=TopicName(), metavar="TOPIC",
              help="Create the queue over this topic if it is missing; repeatable.")  # fmt: skip
@click.option("--from", "start", type=START, metavar="MOMENT", help="With --topic: where a new queue begins.")
@click.option("--accept", is_flag=True, help="Accept the records once they are printed.")
@gateway
def receive(
    session: Session,
    name: str,
    most: int,
    wait_ms: int,
    lock_ms: int | None,
    topics: tuple[str, ...],
    start: Moment | None,
    accept: bool,
) -> None:
    """Lease records of a queue. Settle them with `sluice queues settle`, or they are delivered again."""
    client, out = session
    body: dict[str, Any] = {"max": most, "wait_ms": wait_ms}
    if lock_ms is not None:
        body["lock_ms"] = lock_ms
    if topics:
        body["topics"] = list(topics)
    if start is not None:
        body["start"] = _start(start)
    got = client.send("POST", f"{queue_path(name)}:receive", body=body, wait_ms=wait_ms).data
    if out.as_json:
        out.document(got)
    else:
        _show_lease(out, name, got)
    if accept and got["lease"] is not None:
        out.flush()
        settled = client.send("POST", f"{queue_path(name)}:settle", body={"accept": [got["lease"]]}).data
        if not out.as_json:
            out.say(_outcomes(settled))
        _require_settled(settled)


def _show_lease(out: Output, name: str, got: Mapping[str, Any]) -> None:
    records = got["records"]
    if not records:
        why = f": {got['blocked']}" if got["blocked"] else ""
        out.say(f"Queue {name} has no record to deliver{why}.")
        return
    rows = [[*_record(one), one["delivery_count"], one["receipt"]] for one in records]
    out.table(("TOPIC", "PARTITION", "OFFSET", "KEY", "VALUE", "DELIVERY", "RECEIPT"), rows)
    out.say()
    left = duration(max(0, got["lock_until_ms"] - time.time_ns() // 1_000_000) // 1000 * 1000)
    out.say(f"Lease {got['lease']}: {counted(len(records), 'record')}, locked for {left}.")


def _receipts(letter: str, name: str, about: str) -> Callable[[Any], Any]:
    return click.option(letter, name, multiple=True, metavar="RECEIPT", help=f"{about}; repeatable.")


@queues.command("settle")
@click.argument("name", metavar="QUEUE")
@_receipts("-a", "--accept", "Done: a receipt or a lease")
@_receipts("-r", "--release", "Deliver it again: a receipt or a lease")
@_receipts("-x", "--reject", "Give it up: a receipt or a lease")
@_receipts("-e", "--extend", "Still at work: a receipt or a lease")
@click.option(
    "--delay", "delay_ms", type=DURATION, metavar="DURATION", help="With --release: deliver it later."
)
@click.option("--lock", "lock_ms", type=DURATION, metavar="DURATION", help="With --extend: the new lock.")
@click.option("--reason", default="", metavar="TEXT", help="With --reject: kept with the dead letter.")
@gateway
def settle(
    session: Session,
    name: str,
    accept: tuple[str, ...],
    release: tuple[str, ...],
    reject: tuple[str, ...],
    extend: tuple[str, ...],
    delay_ms: int | None,
    lock_ms: int | None,
    reason: str,
) -> None:
    """Say what became of received records, by their receipts or by their lease."""
    if not (accept or release or reject or extend):
        raise click.UsageError("Say what became of them: --accept, --release, --reject or --extend.")
    body = {
        "accept": list(accept),
        "release": [_item(one) | {"delay_ms": delay_ms} for one in release],
        "reject": [_item(one) | {"reason": reason} for one in reject],
        "extend": [_item(one) | {"lock_ms": lock_ms} for one in extend],
    }
    done = session.client.send("POST", f"{queue_path(name)}:settle", body=body).data
    session.out.result(done, _outcomes(done))
    _require_settled(done)


def _require_settled(done: Mapping[str, Any]) -> None:
    lost = [outcome for outcome in done["counts"] if outcome not in ("settled", "already-settled", "late")]
    if lost:
        raise CommandError(
            f"Not everything is settled: {', '.join(lost)}.",
            "Another receiver has a record whose lease is lost, or will have it.",
        )


def _item(text: str) -> dict[str, Any]:
    return {"receipt" if "." in text else "lease": text}


def _outcomes(done: Mapping[str, Any]) -> str:
    parts: Sequence[str] = [f"{count:,} {outcome}" for outcome, count in done["counts"].items()]
    return f"{', '.join(parts) or 'nothing settled'}."


# --- dead letters -------------------------------------------------------------------------------------------


@queues.command("dead-letters")
@click.argument("name", metavar="QUEUE")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="At most.")
@gateway
def list_dead_letters(session: Session, name: str, limit: int) -> None:
    """List the records that a queue has given up, and why."""
    client, out = session
    items = list(islice(client.pages(f"{queue_path(name)}/dead-letters"), limit))
    rows: list[list[Cell]] = [
        [
            one["topic"],
            one["partition"],
            one["offset"],
            one["cause"],
            one["delivery_count"],
            one["reason"],
            _text(one["record"]["key"]),
            "(pointer)" if one["pointer"] else _text(one["record"]["value"]),
        ]
        for one in items
    ]
    out.listing(
        items, ("TOPIC", "PARTITION", "OFFSET", "CAUSE", "DELIVERIES", "REASON", "KEY", "VALUE"), rows
    )


@queues.command("redrive")
@click.argument("name", metavar="QUEUE")
@click.option("-t", "--topic", metavar="TOPIC", help="Only records that came from this topic.")
@click.option("--cause", type=click.Choice(["rejected", "limit", "expired", "lost"]), help="Only these.")
@click.option(
    "--to", metavar="TOPIC", help="Append them to this topic, in place of the topic of each record."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Records per second.")
@click.option("--dry-run", is_flag=True, help="Count the records and append none.")
@gateway
def redrive(
    session: Session,
    name: str,
    topic: str | None,
    cause: str | None,
    to: str | None,
    rate: float | None,
    dry_run: bool,
) -> None:
    """Append dead letters again, each exactly once, and wait until that is done. Ctrl-C leaves it running."""
    client, out = session
    wanted = {"topic": topic, "cause": cause, "to": to, "rate": rate, "dry_run": dry_run}
    body = {member: value for member, value in wanted.items() if value is not None}
    path = queue_path(name)
    task = client.send("POST", f"{path}/dead-letters:redrive", body=body).data
    with out.progress() as progress:
        while task["state"] == "running":
            progress.update(f"{counted(task['moved'], 'record')} moved …")
            time.sleep(_REDRIVE_SECONDS)
            task = client.get(f"{path}/redrives/{segment(task['id'])}")
    moved, skipped = counted(task["moved"], "record"), task["skipped"]
    text = f"{moved} would be moved." if dry_run else f"{moved} moved."
    out.result(
        task, text + (f" {counted(skipped, 'pointer')} left: the records are no more." if skipped else "")
    )
    if task["state"] != "done":
        raise CommandError(f"The redrive is {task['state']}. {task['error']}".rstrip())


@queues.command("purge")
@click.argument("name", metavar="QUEUE")
@YES
@gateway
def purge_dead_letters(session: Session, name: str, yes: bool) -> None:
    """Forget all dead letters of a queue. The records stay in their topic until its retention."""
    confirm(f"Forget all dead letters of queue {name}?", yes=yes, what="purge")
    session.client.send("POST", f"{queue_path(name)}/dead-letters:purge")
    session.out.result({"purged": name}, f"The dead letters of queue {name} are forgotten.")
