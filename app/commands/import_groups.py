"""`sluice import-groups`: take over the groups that a broker of the line protocol kept in JSON files.

That protocol's text says what the files hold and not how. So both are read in the two ways that JSON suggests,
by name and as a list:

    groups.json    {"billing": {"topic": "orders", "generation": 3, "assignor": "round_robin",
                                "members": ["c1", "c2"], "assignments": {"c1": [0, 2], "c2": [1]}}}
                   [{"group": "billing", "topic": "orders", …}]
    offsets.json   {"billing": {"orders": {"0": 17, "1": 4}}}
                   [{"group": "billing", "topic": "orders", "partition": 0, "offset": 17}]

Safe to repeat, and safe to stop in the middle: an offset is only ever moved forward, a group that has come as far
as the file says is left alone. Topics must be there before, with their partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import click
import msgspec

from app.commands.client import Client, group_path
from app.commands.errors import CommandError, RefusedError
from app.commands.options import Session, gateway
from app.commands.output import Cell

# What the protocol calls a strategy, and what this broker does.
_ASSIGNORS = {"round_robin": "roundrobin", "roundrobin": "roundrobin", "range": "range", "": "", None: ""}
# Offsets in one request.
_AT_ONCE = 10_000


class KeptGroup(NamedTuple):
    """A group of the file. `members` are those that were there, with the partitions that they own."""

    topic: str
    generation: int
    assignor: str
    members: dict[str, list[int]]


class KeptOffset(NamedTuple):
    """An offset of the file: the next that the group reads."""

    topic: str
    partition: int
    offset: int


Kept = dict[str, list[KeptOffset]]


@click.command("import-groups")
@click.argument("groups_file", metavar="GROUPS.JSON", type=click.File("rb"))
@click.argument("offsets_file", metavar="OFFSETS.JSON", type=click.File("rb"))
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@gateway
def import_groups(session: Session, groups_file: BinaryIO, offsets_file: BinaryIO, dry_run: bool) -> None:
    """Take over the groups and committed offsets that a broker of the line protocol kept in two JSON files.

    Stop that broker first. Members continue in their generation and need not join again. Offsets only move forward,
    so a second import does no harm. `-` is the standard input.
    """
    client, out = session
    groups = dict(_groups(_document(groups_file)))
    offsets = _offsets(_document(offsets_file))
    done: list[dict[str, Any]] = []
    for name in sorted(groups.keys() | offsets.keys()):
        moved, left = _import_offsets(client, name, offsets.get(name, []), dry_run=dry_run)
        state = "-"
        if name in groups:
            state = _import_group(client, name, groups[name], dry_run=dry_run)
        done.append({"group_id": name, "offsets_set": moved, "offsets_kept": left, "group": state})
    if out.as_json:
        out.document({"dry_run": dry_run, "groups": done})
        return
    rows: list[list[Cell]] = [[d["group_id"], d["offsets_set"], d["offsets_kept"], d["group"]] for d in done]
    out.table(("GROUP", "OFFSETS SET", "OFFSETS KEPT", "MEMBERS"), rows)
    if dry_run:
        out.say("A dry run: nothing was changed.")


# --- what is sent ------------------------------------------------------------------------------------------


def _import_offsets(
    client: Client, group: str, wanted: list[KeptOffset], *, dry_run: bool
) -> tuple[int, int]:
    """How many offsets were set, and how many left alone because the group has come further."""
    known: dict[tuple[str, int], int] = {}
    try:
        for one in client.get(f"{group_path(group)}/offsets")["offsets"]:
            known[one["topic"], one["partition"]] = one["next_offset"]
    except RefusedError as error:
        if error.status != 404:
            raise
    ahead = [one for one in wanted if known.get((one.topic, one.partition), -1) < one.offset]
    for start in range(0, 0 if dry_run else len(ahead), _AT_ONCE):
        positions = [
            {"topic": one.topic, "partition": one.partition, "next_offset": one.offset}
            for one in ahead[start : start + _AT_ONCE]
        ]
        client.send("PATCH", f"{group_path(group)}/offsets", body={"offsets": positions})
    return len(ahead), len(wanted) - len(ahead)


def _import_group(client: Client, name: str, group: KeptGroup, *, dry_run: bool) -> str:
    """What became of a group's members."""
    try:
        present = client.get(group_path(name))["generation_id"]
    except RefusedError as error:
        if error.status != 404:
            raise
        present = -1
    if present >= group.generation:
        return f"left alone, in generation {present}"
    if not dry_run:
        body = {
            "topic": group.topic,
            "generation_id": group.generation,
            "assignor": group.assignor,
            "members": [{"member_id": m, "partitions": mine} for m, mine in group.members.items()],
        }
        client.send("PUT", group_path(name), body=body)
    return f"{len(group.members)}, in generation {group.generation}"


# --- what is read ------------------------------------------------------------------------------------------


def _document(file: BinaryIO) -> Any:
    try:
        return msgspec.json.decode(file.read())
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{file.name} is no JSON: {error}.") from None


def _groups(document: Any) -> Iterator[tuple[str, KeptGroup]]:
    for name, one in _named(document):
        where = f"groups.json, group {name!r}"
        members = one.get("members", [])
        assignments = one.get("assignments", {})
        if not isinstance(members, list | dict) or not isinstance(assignments, dict):
            raise CommandError(f"{where}: members must be a list or an object, assignments an object.")
        ids: list[Any] = [m.get("id") or m.get("consumer_id") if isinstance(m, dict) else m for m in members]
        assignor = one.get("assignor")
        if not all(isinstance(member, str) and member for member in ids):
            raise CommandError(f"{where}: a member has no name.")
        if assignor is not None and assignor not in _ASSIGNORS:
            raise CommandError(f"{where}: the assignor is {assignor!r}, not round_robin or range.")
        yield (
            name,
            KeptGroup(
                _text(where, "topic", one.get("topic")),
                _number(where, "generation", one.get("generation")),
                _ASSIGNORS[assignor],
                {member: _numbers(where, assignments.get(member, [])) for member in ids},
            ),
        )


def _offsets(document: Any) -> Kept:
    kept: Kept = {}
    if isinstance(document, list):
        for name, one in _named(document):
            where = f"offsets.json, group {name!r}"
            kept.setdefault(name, []).append(
                KeptOffset(
                    _text(where, "topic", one.get("topic")),
                    _number(where, "partition", one.get("partition")),
                    _number(where, "offset", one.get("offset")),
                )
            )
        return kept
    for name, topics in _named(document):
        for topic, partitions in topics.items():
            where = f"offsets.json, group {name!r}, topic {topic!r}"
            if not isinstance(partitions, dict):
                raise CommandError(f"{where}: partitions must be an object.")
            kept.setdefault(name, []).extend(
                KeptOffset(topic, _number(where, "partition", _digits(p)), _number(where, "offset", offset))
                for p, offset in partitions.items()
            )
    return kept


def _named(document: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a document with the names of their groups, in either of the two forms."""
    if isinstance(document, dict):
        items = list(document.items())
    elif isinstance(document, list):
        items = [(one.get("group") if isinstance(one, dict) else None, one) for one in document]
    else:
        raise CommandError("The file must hold an object, or a list of objects.")
    for name, one in items:
        if not isinstance(one, dict) or not isinstance(name, str) or not name:
            raise CommandError(f"{one!r:.60} is no object with the name of a group.")
        yield name, one


def _text(where: str, what: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise CommandError(f"{where}: the {what} must be a name, not {value!r:.60}.")
    return value


def _number(where: str, what: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise CommandError(f"{where}: the {what} must be a whole number from 0, not {value!r:.60}.")
    return value


def _numbers(where: str, values: Any) -> list[int]:
    if not isinstance(values, list):
        raise CommandError(f"{where}: an assignment must be a list of partitions, not {values!r:.60}.")
    return [_number(where, "partition", value) for value in values]


def _digits(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() else text
