"""Which rights the principals of a run have, as far as the answers to their changes say, and what leaks from that.

A right is surely there from the answer to its grant until a revocation is sent, and surely revoked from the answer to
its revocation until a grant is sent. Between these nothing is known, and nothing is checked. An answer is a leak

- if the right was revoked before its request was sent, and it is not the refusal;
- if it holds a record that was first sent after the right was revoked: then it was read after that, however long the
  request had waited.

A write may not be taken if the right was revoked when it was sent, or if its offset is above that of a record
that the administrator wrote after the right was revoked. A refusal must not come while the right is surely there.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from core.security.acl import Operation, ResourceType
from tests.simulation.ledger import BrokenPromiseError

TOPIC = "guarded"
PARTITIONS = 2
USERS = ("anna", "ben")
Right = tuple[ResourceType, Operation]
READ: Right = (ResourceType.TOPIC, Operation.READ)
WRITE: Right = (ResourceType.TOPIC, Operation.WRITE)
GROUP: Right = (ResourceType.GROUP, Operation.READ)


def group_of(user: str) -> str:
    """The group that a user reads with."""
    return f"{TOPIC}-{user}"


@dataclass
class Standing:
    """Whether something is surely on, and since when, or surely off; both None while a change is under way."""

    on_since: float | None = None
    off_since: float | None = 0.0

    def will_be(self, on: bool) -> None:
        """A change is about to be sent."""
        if on:
            self.off_since = None
        else:
            self.on_since = None

    def became(self, on: bool, now: float) -> None:
        """The change was answered."""
        if on:
            self.on_since, self.off_since = now if self.on_since is None else self.on_since, None
        else:
            self.on_since, self.off_since = None, now if self.off_since is None else self.off_since

    def on(self, since: float) -> bool:
        """Whether it has been on from a moment until now, for sure."""
        return self.on_since is not None and self.on_since <= since

    def off(self, since: float) -> bool:
        """Whether it has been off from a moment until now, for sure."""
        return self.off_since is not None and self.off_since <= since


@dataclass
class Rules:
    """The rights of all users, their tokens, and what was written when."""

    rights: dict[tuple[str, Right], Standing] = field(default_factory=lambda: defaultdict(Standing))
    # Rights that were taken by a rule that denies them. It implies nothing: the rule that allows READ still allows
    # DESCRIBE.
    denied: set[tuple[str, Right]] = field(default_factory=set)
    users: dict[str, Standing] = field(default_factory=lambda: defaultdict(Standing))
    # The text and the id of the token that a user has now; and tokens that are surely not valid any more.
    tokens: dict[str, tuple[str, str]] = field(default_factory=dict)
    dead_tokens: list[str] = field(default_factory=list)
    # When each value of the topic was first sent.
    born: dict[bytes, float] = field(default_factory=dict)
    # The administrator's last record in each partition: when it was sent, and its offset.
    markers: dict[int, tuple[float, int]] = field(default_factory=dict)
    # Values of writes that were answered with a refusal.
    refused: set[bytes] = field(default_factory=set)

    def may_be_off(self, user: str, rights: tuple[Right, ...], asked: float) -> bool:
        """Whether a refusal of a request that was sent at `asked`, and needs all of the rights, can be right."""
        return not all(self.rights[user, right].on(asked) for right in rights)

    def is_off(self, user: str, rights: tuple[Right, ...], asked: float) -> bool:
        """Whether a request that was sent at `asked`, and needs all of the rights, must be refused."""
        return any(self.rights[user, right].off(asked) for right in rights)

    def check(self, user: str, rights: tuple[Right, ...], asked: float, refused: bool, what: str) -> None:
        """A request that was sent at `asked`, and needs all of the rights, was answered just now."""
        if refused and not self.may_be_off(user, rights, asked):
            raise BrokenPromiseError(f"{what} was refused to {user}, which has the right")
        if not refused and self.is_off(user, rights, asked):
            raise BrokenPromiseError(f"leak: {what} was answered to {user}, whose right was revoked before")

    def gave(self, user: str, value: bytes, what: str) -> None:
        """A record was given to a user just now."""
        off, born = self.rights[user, READ].off_since, self.born.get(value)
        if off is not None and born is not None and born > off:
            raise BrokenPromiseError(
                f"leak: {what} gave {user} {value!r} of {born:.4f}; the right was revoked at {off:.4f}"
            )

    def took(self, user: str, partition: int, offset: int, what: str) -> None:
        """A write of a user was answered with its offset just now."""
        off, (sent, marker) = self.rights[user, WRITE].off_since, self.markers.get(partition, (0.0, 0))
        if off is not None and sent > off and offset > marker:
            raise BrokenPromiseError(
                f"{what} of {user} was appended at {offset}, after {marker} of {sent:.4f}; the right was revoked at "
                f"{off:.4f}"
            )

    def check_log(self, values: set[bytes]) -> None:
        """Everything that the topic holds in the end."""
        if wrong := values & self.refused:
            raise BrokenPromiseError(f"refused to their writers, and in the log: {sorted(wrong)[:5]}")
