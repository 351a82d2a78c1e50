"""`sluice acls`: access rules, with the options and words of `kafka-acls.sh`.

`--producer` and `--consumer` are several rules at once: what a producer needs of its topics, and a consumer of its
topics and groups. `--data-dir` changes the rules of a broker that is stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import wraps
from itertools import product
from typing import Any, Protocol

import click

from app.commands.client import Client
from app.commands.options import YES, Session, confirm, data_dir, gateway, offline
from app.commands.text import counted

_ANY_HOST, _CLUSTER = "*", "kafka-cluster"
OPERATIONS = (
    "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
)  # fmt: skip
_PRODUCER = {"TOPIC": ("WRITE", "DESCRIBE", "CREATE"), "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE")}
_CONSUMER = {"TOPIC": ("READ", "DESCRIBE"), "GROUP": ("READ",)}

Rule = dict[str, Any]
Wanted = Mapping[str, str | None]


class Acls(Protocol):
    """The access rules of a broker: over HTTP, or in the data directory of one that is stopped."""

    def find(self, wanted: Wanted) -> list[Rule]:
        """Return the rules that fit a filter, as the API shows them."""
        ...

    def add(self, rules: Sequence[Wanted]) -> Sequence[Rule]:
        """Create rules; return them."""
        ...

    def remove(self, wanted: Wanted, *, dry_run: bool) -> Sequence[Rule]:
        """Delete the rules that fit a filter; return them."""
        ...


class RemoteAcls:
    """The access rules of a running broker."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def find(self, wanted: Wanted) -> list[Rule]:
        """See `Acls.find`."""
        found: list[Rule] = self._client.get("/acls", wanted)["items"]
        return found

    def add(self, rules: Sequence[Wanted]) -> Sequence[Rule]:
        """See `Acls.add`."""
        made: Sequence[Rule] = self._client.send("POST", "/acls", body={"acls": [*rules]}).data["items"]
        return made

    def remove(self, wanted: Wanted, *, dry_run: bool) -> Sequence[Rule]:
        """See `Acls.remove`."""
        query = {**wanted, "dry_run": "true" if dry_run else None}
        gone: Sequence[Rule] = self._client.send("DELETE", "/acls", params=query).data["items"]
        return gone


class Word(click.ParamType[str]):
    """One of some words, as Kafka's tools take them: `IdempotentWrite`, `idempotent-write`, `IDEMPOTENT_WRITE`."""

    name = "word"

    def __init__(self, words: Sequence[str]) -> None:
        self._words = {word.replace("_", ""): word for word in words}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word of the API."""
        plain = str(value).replace("_", "").replace("-", "").upper()
        if plain not in self._words:
            self.fail(f"{value!r} is not one of {', '.join(self._words.values())}.", param, ctx)
        return self._words[plain]


def _acls(session: Session) -> Acls:
    rules: Acls = offline("OfflineAcls") or RemoteAcls(session.client)
    return rules


@click.group()
@data_dir("rules")
def acls() -> None:
    """Access rules, with the options of kafka-acls.sh: list, add, remove."""


def _resources(function: Any) -> Any:
    """Add the options that name resources; the command gets those that they name."""

    @wraps(function)
    def with_resources(
        *args: Any,
        topics: Sequence[str],
        groups: Sequence[str],
        cluster: bool,
        transactional_ids: Sequence[str],
        **rest: Any,
    ) -> None:
        named = [("TOPIC", name) for name in topics] + [("GROUP", name) for name in groups]
        named += [("CLUSTER", _CLUSTER)] * cluster
        named += [("TRANSACTIONAL_ID", name) for name in transactional_ids]
        resources = [{"resource_type": kind, "resource_name": name} for kind, name in named]
        function(*args, resources=resources, **rest)

    for option in (
        click.option(
            "--transactional-id", "transactional_ids", multiple=True, metavar="ID", help="A transactional id."
        ),
        click.option("--cluster", is_flag=True, help="The cluster."),
        click.option("--group", "groups", multiple=True, metavar="NAME", help="A consumer group; * for all."),
        click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic; * for all."),
    ):
        option(with_resources)
    return with_resources


_OPERATION = click.option(
    "--operation", "operations", type=Word(OPERATIONS), multiple=True, metavar="NAME",
    help="As Kafka calls it, such as Read.",
)  # fmt: skip
_PRINCIPAL = click.option("--principal", metavar="User:NAME", help="Only rules for this principal.")
PATTERN = click.option(
    "--resource-pattern-type", "pattern", type=Word(("LITERAL", "PREFIXED")), default="LITERAL", metavar="TYPE",
    help="literal, or prefixed: the names are the beginnings of names.",
)  # fmt: skip
PATTERN_TO_FIND = click.option(
    "--resource-pattern-type", "pattern", type=Word(("ANY", "MATCH", "LITERAL", "PREFIXED")), default="ANY",
    metavar="TYPE", help="any, literal, prefixed, or match: every pattern that covers the name.",
    callback=lambda _context, _option, value: None if value == "ANY" else value,
)  # fmt: skip


@acls.command("list")
@_resources
@PATTERN_TO_FIND
@_PRINCIPAL
@gateway
def list_acls(
    session: Session,
    resources: list[Rule],
    pattern: str | None,
    principal: str | None,
) -> None:
    """List access rules."""
    found: dict[tuple[str, ...], Rule] = {}
    for resource in resources or [{}]:
        wanted = {**resource, "principal": principal, "pattern_type": pattern}
        found |= {tuple(map(str, one.values())): one for one in _acls(session).find(wanted)}
    _show(session, list(found.values()))


@acls.command("add")
@_resources
@PATTERN
@_OPERATION
@click.option("--allow-principal", "allowed", multiple=True, metavar="User:NAME", help="User:* for all.")
@click.option("--deny-principal", "denied", multiple=True, metavar="User:NAME", help="User:* for all.")
@click.option("--allow-host", "allowed_hosts", multiple=True, metavar="IP", help="Of --allow-principal [*].")
@click.option("--deny-host", "denied_hosts", multiple=True, metavar="IP", help="Of --deny-principal [*].")
@click.option("--producer", is_flag=True, help="What a producer needs of the topics and transactional ids.")
@click.option("--consumer", is_flag=True, help="What a consumer needs of the topics and groups.")
@click.option(
    "--idempotent", is_flag=True, help="With --producer: IdempotentWrite on the cluster, for old clients."
)
@gateway
def add_acls(
    session: Session,
    /,
    resources: list[Rule],
    pattern: str,
    operations: tuple[str, ...],
    **who: Any,
) -> None:
    """Add access rules: each operation on each resource for each principal."""
    if not who["allowed"] and not who["denied"]:
        raise click.UsageError("Name at least one --allow-principal or --deny-principal.")
    granted = list(
        _granted(
            resources, operations, pattern, **{k: who[k] for k in ("producer", "consumer", "idempotent")}
        )
    )
    if not granted:
        raise click.UsageError("Name a resource: --topic, --group, --cluster or --transactional-id.")
    people = [
        {"principal": principal, "host": host, "permission_type": permission}
        for permission, principals, hosts in (
            ("ALLOW", who["allowed"], who["allowed_hosts"]),
            ("DENY", who["denied"], who["denied_hosts"]),
        )
        for principal, host in product(principals, hosts or (_ANY_HOST,))
    ]
    _show(session, _acls(session).add([{**one, **person} for one, person in product(granted, people)]))


def _granted(
    resources: Sequence[Rule],
    operations: Sequence[str],
    pattern: str,
    *,
    producer: bool,
    consumer: bool,
    idempotent: bool,
) -> Iterator[Rule]:
    """Yield each operation on each resource, with the pattern; without an operation named, ALL."""
    if not producer and not consumer:
        for resource, operation in product(resources, operations or ("ALL",)):
            yield {**resource, "operation": operation, "pattern_type": _pattern_of(resource, pattern)}
        return
    if operations:
        raise click.UsageError("--producer and --consumer have their own operations; leave out --operation.")
    kinds = {one["resource_type"] for one in resources}
    if "TOPIC" not in kinds or (consumer and "GROUP" not in kinds):
        raise click.UsageError("--producer needs a --topic, --consumer a --topic and a --group.")
    seen: set[tuple[str, str, str]] = set()
    for needs in [_PRODUCER] * producer + [_CONSUMER] * consumer:
        for resource in resources:
            kind, name = resource["resource_type"], resource["resource_name"]
            for operation in needs.get(kind, ()):
                if (kind, name, operation) not in seen:
                    seen.add((kind, name, operation))
                    yield {**resource, "operation": operation, "pattern_type": pattern}
    if producer and idempotent:
        yield {
            "resource_type": "CLUSTER", "resource_name": _CLUSTER, "operation": "IDEMPOTENT_WRITE",
            "pattern_type": "LITERAL",
        }  # fmt: skip


def _pattern_of(resource: Rule, pattern: str) -> str:
    """The cluster has one name."""
    return "LITERAL" if resource["resource_type"] == "CLUSTER" else pattern


@acls.command("remove")
@_resources
@PATTERN_TO_FIND
@_OPERATION
@_PRINCIPAL
@click.option("--permission", type=Word(("ALLOW", "DENY")), metavar="allow|deny", help="Only such rules.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@YES
@gateway
def remove_acls(
    session: Session,
    /,
    resources: list[Rule],
    pattern: str | None,
    operations: tuple[str, ...],
    **options: Any,
) -> None:
    """Remove the access rules that fit all that is named."""
    if not (resources or operations or options["principal"] or options["permission"]):
        raise click.UsageError("Name a resource, an --operation, a --principal or a --permission.")
    rest = {
        "principal": options["principal"],
        "permission_type": options["permission"],
        "pattern_type": pattern,
    }
    filters = [
        {**one, **rest, "operation": what} for one, what in product(resources or [{}], operations or [None])
    ]
    rules = _acls(session)
    found = [one for wanted in filters for one in rules.remove(wanted, dry_run=True)]
    if options["dry_run"] or not found:
        _show(session, found)
        return
    if not options["yes"]:
        _show(session, found)
    confirm(f"Remove {counted(len(found), 'access rule')}?", yes=options["yes"], what="remove")
    _show(session, [one for wanted in filters for one in rules.remove(wanted, dry_run=False)])


def _show(session: Session, found: Sequence[Rule]) -> None:
    rows = [
        [one["permission_type"], one["principal"], one["host"], one["operation"], one["resource_type"],
         one["resource_name"] + ("…" if one["pattern_type"] == "PREFIXED" else "")]
        for one in found
    ]  # fmt: skip
    columns = ("PERMISSION", "PRINCIPAL", "HOST", "OPERATION", "TYPE", "RESOURCE")
    session.out.listing(list(found), columns, rows)
