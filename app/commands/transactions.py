"""`sluice transactions`: list, describe, abort, find-hanging."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import click

from app.commands.client import Client, topic_path, transaction_path
from app.commands.errors import CommandError, RefusedError
from app.commands.moments import DurationType
from app.commands.options import YES, Session, TopicName, confirm, gateway
from app.commands.output import Cell, Output
from app.commands.text import counted, duration, owned

STATES = click.Choice(
    ["empty", "ongoing", "preparecommit", "prepareabort", "completecommit", "completeabort"],
    case_sensitive=False,
)
# A transaction that is open for this much longer than its timeout cannot be aborted for some reason; Kafka's number.
LATE_MS = 5 * 60_000


@click.group()
def transactions() -> None:
    """Transactions: list, describe, abort, find hanging ones."""


@transactions.command("list")
@click.argument("prefix", default="")
@click.option("-s", "--state", "states", multiple=True, type=STATES, help="Only these; repeatable.")
@click.option("--producer-id", type=click.IntRange(0), metavar="N", help="Only the id of this producer.")
@click.option("--longer-than", "longer_than_ms", type=DurationType(), metavar="DURATION",
              help="Only transactions that are open for longer, such as 30s, 15m, 2h.")  # fmt: skip
@gateway
def list_transactions(
    session: Session,
    prefix: str,
    states: tuple[str, ...],
    producer_id: int | None,
    longer_than_ms: int | None,
) -> None:
    """List the transactional ids, or those that begin with PREFIX."""
    client, out = session
    query = {
        "prefix": prefix or None,
        "state": ",".join(states) or None,
        "producer_id": producer_id,
        "longer_than_ms": longer_than_ms,
    }
    items = list(client.pages("/transactions", query))
    rows: list[list[Cell]] = [
        [
            one["transactional_id"],
            one["state"],
            one["producer_id"],
            one["producer_epoch"],
            _age(one),
            duration(one["timeout_ms"]),
            one["partitions"],
        ]
        for one in items
    ]
    out.listing(
        items, ("TRANSACTIONAL ID", "STATE", "PRODUCER", "EPOCH", "AGE", "TIMEOUT", "PARTITIONS"), rows
    )


def _age(one: Mapping[str, Any]) -> str | None:
    """For how long a transaction is open, in whole seconds, or in whole minutes if it is long."""
    age_ms: int | None = one["age_ms"]
    if age_ms is None:
        return None
    return duration(age_ms - age_ms % (60_000 if age_ms >= 3_600_000 else 1000))


@transactions.command("describe")
@click.argument("names", metavar="TRANSACTIONAL_ID...", nargs=-1, required=True)
@gateway
def describe_transactions(session: Session, names: tuple[str, ...]) -> None:
    """Show transactional ids: state, producer, age, partitions and groups of the open transaction."""
    client, out = session
    documents = [client.get(transaction_path(name)) for name in names]
    out.descriptions(documents, lambda document: _show(out, document))


def _show(out: Output, one: Mapping[str, Any]) -> None:
    out.heading(f"Transactional id {one['transactional_id']}")
    out.facts(
        (
            ("state", one["state"]),
            ("producer id", one["producer_id"]),
            ("producer epoch", one["producer_epoch"]),
            ("timeout", duration(one["timeout_ms"])),
            ("started", one["started"]),
            ("age", _age(one)),
            ("expires", one["expires"]),
            ("partitions", owned(one["partition_details"]) or None),
            ("offsets of groups", ", ".join(one["groups"]) or None),
        )
    )


@transactions.command("abort")
@click.argument("names", metavar="TRANSACTIONAL_ID...", nargs=-1, required=True)
@YES
@gateway
def abort_transactions(session: Session, names: tuple[str, ...], yes: bool) -> None:
    """Abort open transactions, in all of their partitions. Their clients are fenced."""
    out = session.out
    names = tuple(dict.fromkeys(names))
    confirm(f"Abort the transaction of {', '.join(names)} and fence its client?", yes=yes, what="abort")
    aborted: list[str] = []
    try:
        for name in names:
            session.client.send("DELETE", transaction_path(name))
            aborted.append(name)
    except CommandError as error:
        if aborted:
            error.hints = (*error.hints, f"Aborted before that: {', '.join(aborted)}.")
        raise
    if out.as_json:
        out.document({"aborted": aborted})
    for name in () if out.as_json else names:
        out.say(f"The transaction of {name} is aborted.")


# --- hanging transactions ------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """A partition, and the first record of the oldest transaction that is open in it."""

    topic: str
    partition: int
    last_stable_offset: int


@transactions.command("find-hanging")
@click.option("-t", "--topic", "topics", multiple=True, type=TopicName(), metavar="TOPIC",
              help="Only this topic; repeatable. Default: all.")  # fmt: skip
@gateway
def find_hanging(session: Session, topics: tuple[str, ...]) -> None:
    """Find partitions that are held up by a transaction that does not end.

    Such a transaction belongs to no transactional id, or is open for five minutes longer than its timeout. Sluice
    aborts both by itself, so there should be none. Needs DESCRIBE on all transactional ids.
    """
    client, out = session
    names = list(topics) or [one["name"] for one in client.pages("/topics", {"include_internal": True})]
    before = dict(_unstable(client, names))
    owners = _owners(client)
    # A transaction that ends meanwhile moves the offset; one that is still open was open all the time.
    after = dict(_unstable(client, sorted({place.topic for place in before})))
    found = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "last_stable_offset": place.last_stable_offset,
            "high_watermark": after[place],
            "transactional_id": late and late["transactional_id"],
            "age_ms": late and late["age_ms"],
        }
        for place in sorted(before.keys() & after.keys())
        for late in _suspects(owners, place)
    ]
    if out.as_json:
        out.document(found)
    elif not found:
        out.say("No hanging transactions.")
    else:
        _show_hanging(out, found)


def _unstable(client: Client, topics: Iterable[str]) -> Iterator[tuple[_Place, int]]:
    """The partitions whose last stable offset is below the high watermark, which is the second member."""
    for topic in topics:
        try:
            detail = client.get(topic_path(topic))
        except RefusedError as error:
            if error.status == 404:
                continue  # deleted since the list was read
            raise
        for one in detail["partition_details"]:
            if one["latest"] < one["high_watermark"]:
                yield _Place(topic, one["partition"], one["latest"]), one["high_watermark"]


def _owners(client: Client) -> list[Mapping[str, Any]]:
    """The transactional ids with an open transaction, and its partitions."""
    owners = []
    for item in client.pages("/transactions", {"state": "Ongoing,PrepareCommit,PrepareAbort"}):
        try:
            owners.append(client.get(transaction_path(item["transactional_id"])))
        except RefusedError as error:
            if error.status != 404:
                raise
    return owners


def _suspects(owners: Iterable[Mapping[str, Any]], place: _Place) -> Iterator[Mapping[str, Any] | None]:
    """The transactions that hold up a partition and hang; None is one without a transactional id."""
    known = False
    for owner in owners:
        for one in owner["partition_details"]:
            if (one["topic"], one["partition"]) != (place.topic, place.partition):
                continue
            # The log may begin after the first record of a transaction.
            if one["first_offset"] is not None and one["first_offset"] <= place.last_stable_offset:
                known = True
                if owner["age_ms"] is not None and owner["age_ms"] > owner["timeout_ms"] + LATE_MS:
                    yield owner
    if not known:
        yield None


def _show_hanging(out: Output, found: list[dict[str, Any]]) -> None:
    rows: list[list[Cell]] = [
        [
            one["topic"],
            one["partition"],
            one["last_stable_offset"],
            one["high_watermark"],
            one["transactional_id"],
            _age(one),
        ]
        for one in found
    ]
    out.table(("TOPIC", "PARTITION", "STABLE", "LATEST", "TRANSACTIONAL ID", "AGE"), rows)
    out.say(
        f"{counted(len(found), 'partition')} held up. `sluice transactions abort` ends a transaction by its id."
    )
