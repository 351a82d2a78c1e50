"""Client quotas: what a user or a client id may do in a second, and how long one waits that has done more.

The entities, the keys and the order in which they apply are Kafka's (KIP-13, 124, 546, 599, 612). A rate is measured
over a window of 11 samples of one second, as Kafka measures it; changes of topics are measured by a token bucket
(KIP-599). All listeners share one bucket for an entity, so more connections or another protocol give no more.

Two things differ from Kafka. A client in debt stays in debt when the window has passed, so that a new connection does
not clear it. One batch that is larger than the whole window is delivered into an empty window; Kafka never delivers
it.

All of it is pure: the caller gives the time, in seconds of the monotonic clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from core.errors import BrokerError, ErrorCode
from core.vocabulary.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Entity,
    QuotaEntry,
    QuotaFilter,
)

ENTITY_TYPES = (USER, CLIENT_ID, IP)
CLIENT_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
# Kafka keeps these as whole numbers.
_WHOLE = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE)
# Kafka's quota.window.num and quota.window.size.seconds.
SAMPLES = 11
SAMPLE_SECONDS = 1.0
# A client over its share of time waits for a second at most (ClientRequestQuotaManager), then it is measured again.
_MAX_REQUEST_WAIT = 1.0
# Buckets of each key. Above it, those that are empty are dropped; the clients after that share one.
MAX_BUCKETS = 10_000


class Window:
    """A rate over the last samples, and a debt that outlives them. `bound` is in units per second.

    The debt is a leaky bucket of the size of the window: it loses `bound` per second, and what is above its size must
    be waited for.
    """

    __slots__ = ("_at", "_level", "_longest", "_samples", "_total", "_until", "bound")

    def __init__(self, bound: float, longest: float = math.inf) -> None:
        self.bound = bound
        self._longest = longest
        # [start, amount], the oldest first, and the sum of them.
        self._samples: deque[list[float]] = deque()
        self._total = 0.0
        # What is in the leaky bucket, and when that was.
        self._level = 0.0
        self._at = 0.0
        # When the wait of the last request is over.
        self._until = 0.0

    def record(self, amount: float, now: float) -> float:
        """Count an amount. Return the seconds that its client must wait; 0 if it is within the quota."""
        full = self.add(amount, now)
        excess = max(self._total - self.bound * self._seconds(now), self._level - full, 0.0)
        self._until = now + min(excess / self.bound, self._longest)
        return self._until - now

    def add(self, amount: float, now: float) -> float:
        """Count an amount, and let the wait be as it is. Return the size of the leaky bucket."""
        self._purge(now)
        if not self._samples or now - self._samples[-1][0] >= SAMPLE_SECONDS:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += amount
        self._total += amount
        full = self.bound * (SAMPLES - 1) * SAMPLE_SECONDS
        self._level = min(self._level + amount, full + self.bound * self._longest)
        return full

    def wait(self, now: float) -> float:
        """Return what is left of the last wait in seconds."""
        return max(self._until - now, 0.0)

    def left(self, now: float) -> float:
        """Return what may still be counted now without a wait, 0 if nothing."""
        if now < self._until:
            return 0.0
        self._purge(now)
        full = self.bound * (SAMPLES - 1) * SAMPLE_SECONDS
        return max(min(self.bound * self._seconds(now) - self._total, full - self._level), 0.0)

    def idle(self, now: float) -> bool:
        """Return whether nothing is remembered."""
        self._purge(now)
        return not self._samples and not self._level and now >= self._until

    def _seconds(self, now: float) -> float:
        """Return the length of the window: at least all samples but one, so that a first request is no burst."""
        elapsed = now - self._samples[0][0] if self._samples else 0.0
        full = int(elapsed / SAMPLE_SECONDS)
        return elapsed + max(SAMPLES - 1 - full, 0) * SAMPLE_SECONDS

    def _purge(self, now: float) -> None:
        samples = self._samples
        while samples and now - samples[0][0] >= SAMPLES * SAMPLE_SECONDS:
            self._total -= samples.popleft()[1]
        if not samples:
            self._total = 0.0
        self._level = max(self._level - (now - self._at) * self.bound, 0.0)
        self._at = now


class TokenBucket:
    """Tokens that come back at `bound` per second, at most those of a whole window (KIP-599)."""

    __slots__ = ("_at", "_tokens", "bound")

    def __init__(self, bound: float) -> None:
        self.bound = bound
        self._tokens = self._most
        self._at = 0.0

    @property
    def _most(self) -> float:
        return self.bound * SAMPLES * SAMPLE_SECONDS

    def record(self, amount: float, now: float) -> float:
        """Take tokens, also below 0. Return the seconds until there are 0 again."""
        self._refill(now)
        self._tokens -= amount
        return self.wait(now)

    def wait(self, now: float) -> float:
        """Return the seconds until there are at least 0 tokens."""
        self._refill(now)
        return max(-self._tokens / self.bound, 0.0)

    def left(self, now: float) -> float:
        """Return the tokens, 0 if there is a debt."""
        self._refill(now)
        return max(self._tokens, 0.0)

    def idle(self, now: float) -> bool:
        """Return whether all tokens are back."""
        self._refill(now)
        return self._tokens >= self._most

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._tokens + (now - self._at) * self.bound, self._most)
            self._at = now


Bucket = Window | TokenBucket


class _Limit(NamedTuple):
    """The quota that applies to a client: its bound, and which clients share it."""

    bound: float
    scope: tuple[str, ...]


class QuotaTable:
    """All quotas of the cluster, and the buckets of this broker. False while there is no quota for a client."""

    def __init__(self) -> None:
        self._quotas: dict[Entity, dict[str, float]] = {}
        self._limits: dict[tuple[str, str, str], _Limit | None] = {}
        self._buckets: dict[str, dict[tuple[str, ...], Bucket]] = {}
        self._has_client_quotas = False
        self.has_ip_quotas = False
        self.has_time_quotas = False

    def __bool__(self) -> bool:
        return self._has_client_quotas

    def __len__(self) -> int:
        return sum(len(values) for values in self._quotas.values())

    def __iter__(self) -> Iterator[tuple[Entity, str, float]]:
        for entity, values in self._quotas.items():
            for key, value in values.items():
                yield entity, key, value

    def replace(self, quotas: Iterable[tuple[Entity, str, float]]) -> None:
        """Take these quotas in the place of all others. What clients have used so far is kept."""
        found: dict[Entity, dict[str, float]] = {}
        for entity, key, value in quotas:
            found.setdefault(entity, {})[key] = value
        self._quotas = found
        self._changed()

    def change(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """Set quotas of an entity; None removes one."""
        values = self._quotas.setdefault(entity, {})
        for key, value in changes.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        if not values:
            del self._quotas[entity]
        self._changed()

    def get(self, entity: Entity) -> Mapping[str, float]:
        """Return the quotas of exactly this entity."""
        return self._quotas.get(entity, {})

    def matching(self, wanted: QuotaFilter) -> list[QuotaEntry]:
        """Return the entities that fit a filter, sorted, with their quotas."""
        found = [
            QuotaEntry(entity, dict(values)) for entity, values in self._quotas.items() if wanted.fits(entity)
        ]
        return sorted(found, key=lambda entry: [(kind, name or "") for kind, name in entry.entity])

    def bucket(self, key: str, user: str, client_id: str, now: float) -> Bucket | None:
        """Return the bucket that counts for a client; None if no quota applies to it."""
        question = (key, user, client_id)
        if question in self._limits:
            limit = self._limits[question]
        else:
            if len(self._limits) >= MAX_BUCKETS:
                self._limits.clear()
            limit = self._limits[question] = self._limit(key, user, client_id)
        return None if limit is None else self._bucket(key, limit, now)

    def time_window(self, user: str, now: float) -> Window | None:
        """Return what counts the percentages of the event loop's time of a user without a client id, if any."""
        found = self.bucket(REQUEST_PERCENTAGE, user, "", now)
        return found if isinstance(found, Window) else None

    def connection_bucket(self, host: str, now: float, configured: float = math.inf) -> Bucket | None:
        """Return the bucket that counts the new connections of an IP address; None if no quota applies to it.

        The quota of the address counts, then that of the default address, then `configured`.
        """
        for entity in (((IP, host),), ((IP, None),)):
            bound = self.get(entity).get(CONNECTION_CREATION_RATE)
            if bound is not None:
                return self._bucket(CONNECTION_CREATION_RATE, _Limit(bound, (host,)), now)
        if configured < math.inf:
            return self._bucket(CONNECTION_CREATION_RATE, _Limit(configured, (host,)), now)
        return None

    def _limit(self, key: str, user: str, client_id: str) -> _Limit | None:
        """Return the most specific quota. Kafka's order, and its sharing, by the entity that has the quota."""
        both, of_user, of_client = (user, client_id), (user,), ("", client_id)
        for entity, scope in (
            (((USER, user), (CLIENT_ID, client_id)), both),
            (((USER, user), (CLIENT_ID, None)), both),
            (((USER, user),), of_user),
            (((USER, None), (CLIENT_ID, client_id)), both),
            (((USER, None), (CLIENT_ID, None)), both),
            (((USER, None),), of_user),
            (((CLIENT_ID, client_id),), of_client),
            (((CLIENT_ID, None),), of_client),
        ):
            bound = self.get(entity).get(key)
            if bound is not None:
                return _Limit(bound, scope)
        return None

    def _bucket(self, key: str, limit: _Limit, now: float) -> Bucket:
        buckets = self._buckets.setdefault(key, {})
        found = buckets.get(limit.scope)
        if found is None:
            scope = limit.scope
            if len(buckets) >= MAX_BUCKETS:
                buckets = self._buckets[key] = {k: one for k, one in buckets.items() if not one.idle(now)}
                if len(buckets) >= MAX_BUCKETS:
                    scope = ()
                    if scope in buckets:
                        return buckets[scope]
            found = buckets[scope] = _new_bucket(key, limit.bound)
        found.bound = limit.bound
        return found

    def _changed(self) -> None:
        self._limits.clear()
        self._has_client_quotas = any(entity[0][0] != IP for entity in self._quotas)
        self.has_ip_quotas = any(entity[0][0] == IP for entity in self._quotas)
        self.has_time_quotas = any(REQUEST_PERCENTAGE in values for values in self._quotas.values())


def _new_bucket(key: str, bound: float) -> Bucket:
    if key == CONTROLLER_MUTATION_RATE:
        return TokenBucket(bound)
    return Window(bound, _MAX_REQUEST_WAIT if key == REQUEST_PERCENTAGE else math.inf)


def entity_of(parts: Sequence[tuple[str, str | None]]) -> Entity:
    """Return the entity of (type, name) pairs in the one order; None is the default. Raises INVALID_REQUEST."""
    if not parts:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    types = [kind for kind, _ in parts]
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"Unhandled client quota entity type: {kind!r}; use one of {', '.join(ENTITY_TYPES)}.",
            )
        if name == "":
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
    if len(set(types)) < len(types):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "An entity type is in the entity more than once.")
    if IP in types:
        if len(types) > 1:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
            )
        return ((IP, None if parts[0][1] is None else _address(parts[0][1])),)
    return tuple(sorted(parts, key=lambda part: ENTITY_TYPES.index(part[0])))


def _address(text: str) -> str:
    """Return an IP address in its one form. Names are not resolved: an answer of DNS must not move a quota."""
    try:
        address = ip_address(text)
    except ValueError:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"{text[:100]!r} is not an IP address; names are not resolved."
        ) from None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def host_of(host: str) -> str:
    """Return the address of a peer as quotas name it: an IPv4 address that is mapped into IPv6 is the IPv4 one."""
    return host.removeprefix("::ffff:") if "." in host else host


def check_quota(entity: Entity, key: str, value: float | None) -> None:
    """Raise INVALID_REQUEST for a key that the entity does not have, or a value that no quota may have.

    To remove a quota (None) under any key is valid, as in Kafka.
    """
    if value is None:
        return
    allowed = (CONNECTION_CREATION_RATE,) if entity[0][0] == IP else CLIENT_KEYS
    if key not in allowed:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid configuration key {key[:100]}: this entity has {', '.join(allowed)}.",
        )
    if not math.isfinite(value) or value <= 0:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    if key in _WHOLE and not value.is_integer():
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"Configuration {key} must be a whole number, not {value}"
        )
