"""The words that all clients of the scenarios share."""

from __future__ import annotations

from typing import NamedTuple


class ClientError(Exception):
    """A refusal, by Kafka's name for it."""

    def __init__(self, name: str, message: str = "") -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


class Read(NamedTuple):
    """A record as a client shows it."""

    offset: int
    key: bytes | None
    value: bytes | None


class Membership(NamedTuple):
    """A member of one generation. `topic` is for clients whose members say it with each request."""

    group: str
    member_id: str
    generation: int
    topic: str = ""
