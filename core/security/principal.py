"""Name the user of a request: a principal, and the caller that acts as one."""

from __future__ import annotations

from dataclasses import dataclass

from core.security.scopes import Scope


@dataclass(frozen=True, slots=True)
class Principal:
    """An identity as Kafka's ACLs name it, such as `User:alice`. `kind` is always `User` so far."""

    kind: str = "User"
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


# Kafka's name for a client that has not authenticated.
ANONYMOUS = Principal("User", "ANONYMOUS")


@dataclass(frozen=True, slots=True)
class Caller:
    """The source of a request: its principal, the address of the client without a port, and its client id.

    `scope` is that of the token by which the client has logged in, if it has one. `credential` is that of
    `core.security.passwords.Identity`.
    """

    principal: Principal
    host: str = ""
    client_id: str = ""
    scope: Scope | None = None
    credential: bytes = b""
