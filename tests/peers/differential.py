"""The same requests to two brokers, in every version that both serve, and their answers compared field by field.

A script (`scripts`) is a function of a `Side`; it runs once for each broker and asks by `Side.ask`. An answer is
flattened to `path: value`; elements of arrays are named by what identifies them (`topics[a].partitions[0]`), so that
their order does not count. What differs by nature, such as ports, is replaced by a symbol (`NATURE`). What is left
and differs must stand in the table of known differences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from core.errors import ErrorCode
from core.protocol.apis import APIS
from tests.peers.raw import KEYS, Answer, Peer, Request

# What tells the elements of an array apart, in this order.
_IDENTITIES = (
    "name", "topic", "topic_name", "resource_name", "group_id", "key", "topic_id", "partition_index", "partition",
    "index", "partition_id", "member_id", "node_id", "broker_id", "producer_id", "log_dir", "api_key",
)  # fmt: skip


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_ERRORS = {code.value: code.name for code in ErrorCode}


def _is_set(value: object) -> str:
    return "set" if value not in (None, "") else "not set"


def _sign(value: int) -> str:
    return "positive" if value > 0 else str(value)


NATURE: Mapping[str, Callable[[Any], object]] = {
    "throttle_time_ms": lambda _: "",
    "host": _is_set,
    "port": _sign,
    "cluster_id": _is_set,
    "error_message": _is_set,
    "batch_index_error_message": _is_set,
    "documentation": _is_set,
    "log_dir": _is_set,
    "total_bytes": _sign,
    "usable_bytes": _sign,
    "session_id": _sign,
    "log_append_time_ms": _sign,
}
"""Fields that two brokers cannot have in common, and what of them must be the same all the same."""


class Side:
    """One of the two brokers during a script. Names of topics and groups begin with `prefix`."""

    def __init__(self, peer: Peer, versions: Mapping[int, Sequence[int]], prefix: str) -> None:
        self.peer = peer
        self.prefix = prefix
        self._versions = versions
        self._symbols: dict[tuple[str, object], str] = {}
        self.ids: dict[str, UUID] = {}

    def versions(self, api: str) -> Sequence[int]:
        """Return the versions of an API in which both brokers are asked."""
        return self._versions.get(KEYS[api], ())

    def name(self, name: str) -> str:
        """Return a name that no other run uses."""
        return self.prefix + name

    def ask(
        self, case: str, api: str, request: Request, *, versions: Iterable[int] | None = None
    ) -> dict[str, Any]:
        """Send a request in each version that both serve, or in those of `versions` among them.

        Returns the answer to the last one, empty if there is none.
        """
        answer: dict[str, Any] = {}
        for version in self.versions(api):
            if versions is None or version in versions:
                answer = self.peer.ask(case, api, version, request)
                self.learn(answer)
        return answer

    def learn(self, value: object) -> None:
        """Keep the ids of topics that an answer names."""
        if isinstance(value, list):
            for one in value:
                self.learn(one)
        elif isinstance(value, dict):
            name = value.get("name") or value.get("topic")
            if name and value.get("topic_id", UUID(int=0)).int:
                self.ids[name] = value["topic_id"]
                self._symbols["id", value["topic_id"]] = f"id of {name}"
            for one in value.values():
                self.learn(one)

    def symbol(self, kind: str, value: object) -> str:
        """Return a name for an id that the broker made: the same at both sides if both made it at the same point."""
        known = sum(1 for of, _ in self._symbols if of == kind)
        return self._symbols.setdefault((kind, value), f"{kind} {known + 1}")

    def flat(self, answer: Answer) -> dict[str, str]:
        """Return an answer as `path: value`; what differs by nature is replaced."""
        if isinstance(answer.body, str):
            return {"": answer.body}
        return {path.replace(self.prefix, ""): value for path, value in self._walk("", answer.body)}

    def _walk(self, path: str, value: Any) -> Iterable[tuple[str, str]]:
        if isinstance(value, dict):
            for name, one in value.items():
                yield from self._walk(f"{path}.{name}" if path else name, self._plain(name, one))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            seen: dict[str, int] = {}
            for one in value:
                name = self._identity(one)
                seen[name] = seen.get(name, 0) + 1
                again = f"#{seen[name]}" if seen[name] > 1 else ""
                yield f"{path}[{name}{again}]", "present"
                yield from self._walk(f"{path}[{name}{again}]", one)
        else:
            text = value.hex() if isinstance(value, bytes) else str(value)
            yield path, text.replace(self.prefix, "")

    def _identity(self, element: dict[str, Any]) -> str:
        for name in _IDENTITIES:
            if element.get(name) is not None:
                return str(self._plain(name, element[name]))
        return ""

    def _plain(self, name: str, value: Any) -> Any:
        if name in NATURE:
            return NATURE[name](value)
        if name.endswith("error_code"):
            return _ERRORS.get(value, value)
        if isinstance(value, UUID):
            return "no id" if not value.int else self._symbols.get(("id", value), "an unknown id")
        if name == "producer_id" and value >= 0:
            return self.symbol("producer", value)
        if name in ("member_id", "leader") and isinstance(value, str) and _UUID.search(value):
            return _UUID.sub(self.symbol("member", value), value)
        return value


class Found(NamedTuple):
    """A field that differs. A side that does not have the field says `absent`."""

    case: str
    api: str
    version: int
    path: str
    kafka: str
    sluice: str

    def __str__(self) -> str:
        return f"{self.case}: {self.api} v{self.version} {self.path}: Kafka {self.kafka!r}, Sluice {self.sluice!r}"


def compare(kafka: Side, sluice: Side) -> list[Found]:
    """Return what differs between the answers of two sides that ran the same scripts."""
    found = []
    for theirs, ours in zip(kafka.peer.answers, sluice.peer.answers, strict=False):
        if theirs[:3] != ours[:3]:  # an answer before led the scripts apart
            found.append(Found(ours.case, "", ours.version, "asks", theirs.case, ours.case))
            break
        left, right = kafka.flat(theirs), sluice.flat(ours)
        api = APIS[ours.key].name if ours.key in APIS else str(ours.key)
        gone: tuple[str, ...] = ()  # elements that one side lacks; each is one difference, whatever is inside
        for path in left | right:
            values = left.get(path, "absent"), right.get(path, "absent")
            if values[0] == values[1] or path.startswith(gone):
                continue
            if "present" in values:
                gone = (*gone, path)
            found.append(Found(ours.case, api, ours.version, path, *values))
    return found


class Known(NamedTuple):
    """A difference that is on purpose, and why. `*` in a text is any text; versions are both ends included.

    `kafka` and `sluice` are the values, so that another difference at the same place is found.
    """

    case: str
    path: str
    kafka: str
    sluice: str
    because: str
    versions: tuple[int, int] = (0, 99)

    def covers(self, found: Found) -> bool:
        """Whether this is the difference that was found."""
        return self.versions[0] <= found.version <= self.versions[1] and all(
            re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL)
            for pattern, text in (
                (self.case, found.case), (self.path, found.path), (self.kafka, found.kafka),
                (self.sluice, found.sluice),
            )
        )  # fmt: skip
