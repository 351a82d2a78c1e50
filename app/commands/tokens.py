"""`sluice tokens`: tokens of users. A new one is printed once, alone on standard output, so that it can be piped."""

from __future__ import annotations

from typing import Any

import click

from app.commands.client import segment
from app.commands.options import Session, gateway

_DAY_SECONDS = 86_400


@click.group()
def tokens() -> None:
    """Tokens for curl, kcat and Spark: create, list, delete."""


@tokens.command("list")
@click.option("--owner", metavar="USER", help="Only those of this user.")
@gateway
def list_tokens(session: Session, owner: str | None) -> None:
    """List tokens without their secrets."""
    items = session.client.get("/tokens", {"owner": owner})["items"]
    rows = [
        [one["id"], one["owner"], one["expires"] or "never", _shown(one["scope"]), one["description"]]
        for one in items
    ]
    session.out.listing(items, ("ID", "OWNER", "EXPIRES", "SCOPE", "DESCRIPTION"), rows)


@tokens.command("create")
@click.argument("owner")
@click.option("--description", default="", metavar="TEXT", help="What it is for.")
@click.option("--days", type=click.IntRange(1, 36_600), metavar="N", help="How long it is valid [90].")
@click.option("--never-expires", is_flag=True, help="It is valid until it is deleted.")
@click.option(
    "--scope", "scopes", multiple=True, metavar="OPERATION:TYPE:NAME",
    help="What it may be used for, of the rights of the user: read:topic:orders, or write:topic:logs-* for a "
    "beginning; repeat it [all].",
)  # fmt: skip
@gateway
def create_token(
    session: Session,
    owner: str,
    description: str,
    days: int | None,
    never_expires: bool,
    scopes: tuple[str, ...],
) -> None:
    """Create a token of a user and print it: it cannot be shown again."""
    if never_expires and days is not None:
        raise click.UsageError("--days and --never-expires exclude each other.")
    body: dict[str, Any] = {"owner": owner, "description": description, "never_expires": never_expires}
    if days is not None:
        body["ttl_seconds"] = days * _DAY_SECONDS
    if scopes:
        body["scope"] = [_rule(text) for text in scopes]
    made = session.client.send("POST", "/tokens", body=body).data
    if session.out.as_json:
        session.out.document(made)
        return
    session.out.note(f"Token {made['id']} of {owner}, valid until {made['expires'] or 'it is deleted'}:")
    session.out.say(made["token"])


def _rule(text: str) -> dict[str, str]:
    """One rule of a scope: `read:topic:orders-*` is a beginning of names, `read:topic:*` all of them."""
    operation, _, rest = text.partition(":")
    kind, _, name = rest.partition(":")
    if not operation or not kind or (not name and kind.lower() != "cluster"):
        raise click.UsageError(f"--scope {text!r} is not like read:topic:orders, or describe:cluster.")
    rule = {"operation": _word(operation), "resource_type": _word(kind)}
    if not name:
        return rule
    if name != "*" and name.endswith("*"):
        return {**rule, "resource_name": name[:-1], "pattern_type": "PREFIXED"}
    return {**rule, "resource_name": name}


def _word(text: str) -> str:
    return text.upper().replace("-", "_")


def _shown(scope: list[dict[str, str]] | None) -> str:
    """A scope as `--scope` takes it."""
    if scope is None:
        return "all"
    return ", ".join(
        f"{rule['operation']}:{rule['resource_type']}:".lower()
        + rule["resource_name"]
        + ("*" if rule["pattern_type"] == "PREFIXED" else "")
        for rule in scope
    )


@tokens.command("delete")
@click.argument("token_id", metavar="ID")
@gateway
def delete_token(session: Session, token_id: str) -> None:
    """Delete a token. From now on it is not valid."""
    session.client.send("DELETE", f"/tokens/{segment(token_id)}")
    session.out.result({"deleted": token_id}, f"Token {token_id} deleted.")
