"""`sluice quotas`: what users, client ids and IP addresses may do in a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from app.commands.options import YES, Session, confirm, gateway

_Command = TypeVar("_Command", bound=Callable[..., Any])
# The type of an entity, its option, and the names of that option and of the one for the default.
_TYPES = (
    ("user", "--of-user", "user_name", "default_user"),
    ("client-id", "--client-id", "client_id", "default_client_id"),
    ("ip", "--ip", "ip", "default_ip"),
)


@click.group()
def quotas() -> None:
    """Client quotas: bytes, partitions and connections per second."""


def _entity(command: _Command) -> _Command:
    for option in (
        click.option("--default-ip", is_flag=True, help="All IP addresses without quotas of their own."),
        click.option("--ip", metavar="ADDRESS", help="An IP address; not with a user or a client id."),
        click.option("--default-client-id", is_flag=True, help="All client ids without quotas of their own."),
        click.option("--client-id", metavar="ID", help="A client id."),
        click.option("--default-user", is_flag=True, help="All users without quotas of their own."),
        click.option(
            "--of-user", "user_name", metavar="NAME", help="A user; `--user` names the one for the login."
        ),
    ):
        command = option(command)
    return command


def _parts(named: dict[str, Any]) -> list[dict[str, str | None]]:
    parts = []
    for kind, option, name_key, default_key in _TYPES:
        name, default = named[name_key], named[default_key]
        if name is not None and default:
            raise click.UsageError(f"{option} and --default-{kind} exclude each other.")
        if name is not None or default:
            parts.append({"type": kind, "name": name})
    if not parts:
        raise click.UsageError("Name the entity: --of-user, --client-id or --ip, or one of the defaults.")
    return parts


def _shown(parts: list[dict[str, str | None]]) -> str:
    return ", ".join(
        f"{one['type']} {one['name']}" if one["name"] is not None else f"default {one['type']}"
        for one in parts
    )


def _value(text: str) -> tuple[str, float]:
    key, equals, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        equals = ""
        value = 0.0
    if not equals or not key:
        raise click.UsageError(f"{text!r} is no quota; write KEY=NUMBER, such as producer_byte_rate=1000000.")
    return key, int(value) if value.is_integer() else value


@quotas.command("list")
@gateway
def list_quotas(session: Session) -> None:
    """List all quotas."""
    items = session.client.get("/quotas")["items"]
    rows = [
        [_shown(one["entity"]), key, f"{value:g}" if isinstance(value, float) else str(value)]
        for one in items
        for key, value in one["quotas"].items()
        if value is not None
    ]
    session.out.listing(items, ("ENTITY", "KEY", "PER SECOND"), rows)


@quotas.command("set")
@_entity
@click.argument("values", nargs=-1, required=True, metavar="KEY=NUMBER...")
@gateway
def set_quotas(session: Session, /, values: tuple[str, ...], **named: Any) -> None:
    """Set the quotas of an entity; those that it had are replaced.

    Keys: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate; of an IP address
    connection_creation_rate.
    """
    body = {"entity": _parts(named), "quotas": dict(map(_value, values))}
    made = session.client.send("PUT", "/quotas", body=body).data
    session.out.result(made, f"Quotas of {_shown(made['entity'])} set.")


@quotas.command("delete")
@_entity
@YES
@gateway
def delete_quotas(session: Session, /, yes: bool, **named: Any) -> None:
    """Delete all quotas of an entity."""
    shown = _shown(_parts(named))
    confirm(f"Delete the quotas of {shown}?", yes=yes, what="delete")
    params = {"user" if option == "user_name" else option: value for option, value in named.items() if value}
    session.client.send("DELETE", "/quotas", params=params)
    session.out.result({"deleted": shown}, f"Quotas of {shown} deleted.")
