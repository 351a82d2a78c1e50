"""`sluice users`: users and their passwords.

A password is asked for, or read from a file or standard input; it is never an argument, which others can see.
`--data-dir` changes the users of a broker that is stopped: for the case that no user can log in.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

import click

from app.commands.client import Client, segment
from app.commands.errors import CommandError
from app.commands.options import YES, Session, confirm, data_dir, gateway, offline

_MAX_PASSWORD_BYTES = 10_000


class Users(Protocol):
    """The users of a broker: over HTTP, or in the data directory of one that is stopped."""

    def all(self) -> list[dict[str, Any]]:
        """Return all users, as the API shows them."""
        ...

    def create(self, name: str, password: str | None) -> dict[str, Any]:
        """Create a user."""
        ...

    def set_password(self, name: str, password: str) -> dict[str, Any]:
        """Give a user another password."""
        ...

    def delete(self, name: str) -> None:
        """Delete a user."""
        ...


class RemoteUsers:
    """The users of a running broker."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def all(self) -> list[dict[str, Any]]:
        """See `Users.all`."""
        found: list[dict[str, Any]] = self._client.get("/users")["items"]
        return found

    def create(self, name: str, password: str | None) -> dict[str, Any]:
        """See `Users.create`."""
        body = {"name": name} if password is None else {"name": name, "password": password}
        made: dict[str, Any] = self._client.send("POST", "/users", body=body).data
        return made

    def set_password(self, name: str, password: str) -> dict[str, Any]:
        """See `Users.set_password`."""
        path = f"/users/{segment(name)}/password"
        changed: dict[str, Any] = self._client.send("PUT", path, body={"password": password}).data
        return changed

    def delete(self, name: str) -> None:
        """See `Users.delete`."""
        self._client.send("DELETE", f"/users/{segment(name)}")


def _users(session: Session) -> Users:
    found: Users = offline("OfflineUsers") or RemoteUsers(session.client)
    return found


@click.group()
@data_dir("users")
def users() -> None:
    """Users and their passwords: create, list, change, delete."""


PASSWORD_FILE = click.option(
    "--password-file", type=click.File("rb"), metavar="FILE",
    help="Read the password from a file, or from standard input with -; otherwise it is asked for.",
)  # fmt: skip


def _password(file: Any) -> str:
    if file is not None:
        data = file.read(_MAX_PASSWORD_BYTES)
        try:
            text: str = data.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise CommandError("The password is not UTF-8.") from None
        return text
    if not sys.stdin.isatty():
        raise click.UsageError(
            "There is no terminal to ask for a password on; add --password-file FILE, or -."
        )
    asked: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return asked


@users.command("list")
@gateway
def list_users(session: Session) -> None:
    """List the users and how their passwords can be checked."""
    items = _users(session).all()
    rows = [
        [one["name"], one["created"], ", ".join(c["mechanism"] for c in one["credentials"])] for one in items
    ]
    session.out.listing(items, ("USER", "CREATED", "MECHANISMS"), rows)


@users.command("create")
@click.argument("name")
@PASSWORD_FILE
@click.option("--no-password", is_flag=True, help="The user logs in with tokens alone.")
@gateway
def create_user(session: Session, name: str, password_file: Any, no_password: bool) -> None:
    """Create a user."""
    if no_password and password_file is not None:
        raise click.UsageError("--no-password and --password-file exclude each other.")
    made = _users(session).create(name, None if no_password else _password(password_file))
    session.out.result(made, f"User {name} created.")


@users.command("password")
@click.argument("name")
@PASSWORD_FILE
@gateway
def change_password(session: Session, name: str, password_file: Any) -> None:
    """Give a user another password."""
    changed = _users(session).set_password(name, _password(password_file))
    session.out.result(changed, f"The password of {name} is changed.")


@users.command("delete")
@click.argument("name")
@YES
@gateway
def delete_user(session: Session, name: str, yes: bool) -> None:
    """Delete a user with its tokens."""
    confirm(f"Delete user {name} with all tokens?", yes=yes, what="delete")
    _users(session).delete(name)
    session.out.result({"deleted": name}, f"User {name} deleted.")
