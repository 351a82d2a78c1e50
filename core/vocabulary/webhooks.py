"""Webhooks of queues: what operators say and see. A webhook delivers the records of a queue to an HTTP endpoint.

A webhook is a receiver inside the broker's process: it leases records and settles them as any other receiver of the
queue. Times are milliseconds of the Unix epoch unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

# Limits of settings.
MAX_CONCURRENCY = 256
MIN_TIMEOUT_MS, MAX_TIMEOUT_MS = 100, 300_000
MAX_RETRIES = 100
MAX_RETRY_MS = 86_400_000
MAX_HEADERS = 20
MAX_HEADER_BYTES = 4_096
MAX_URL = 2_048
# Sends that are kept of each webhook.
ATTEMPTS_KEPT = 100
# How long the secret before a rotation still signs (Standard Webhooks asks for an overlap).
ROTATION_MS = 86_400_000
# After this time without one success a webhook is switched off.
MAX_FAILING_MS = 5 * 86_400_000
# The pauses of Standard Webhooks, after each attempt; the last one repeats.
DEFAULT_RETRIES_MS = (
    5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000, 50_400_000, 72_000_000, 86_400_000,
)  # fmt: skip


class Format(Enum):
    """The form of the request."""

    STANDARD = "standard-webhooks"
    CLOUDEVENTS_BINARY = "cloudevents-binary"
    CLOUDEVENTS_STRUCTURED = "cloudevents-structured"
    RAW = "raw"


class Signing(Enum):
    """How requests are signed: v1 of Standard Webhooks with a shared secret, or v1a with a key pair."""

    HMAC = "hmac-sha256"
    ED25519 = "ed25519"


class Circuit(Enum):
    """Whether records are sent. OPEN: the endpoint fails, nothing is leased. HALF_OPEN: one record is tried."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Verdict(Enum):
    """What becomes of a record after an attempt."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    RETRIED = "retried"
    # Given back without a delivery: the broker stops, or the webhook was changed.
    RELEASED = "released"
    # The endpoint answered 410: the webhook is off, and the record is given back without a delivery.
    SWITCHED_OFF = "switched-off"


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """The settings of a webhook.

    `retries_ms` are the pauses after the first, second … attempt; the last one repeats. `headers` are sent along;
    their values are never shown, and None keeps those that the webhook has. `reject_422` and `reject_4xx` give a
    record up at once if the endpoint answers so.
    """

    url: str
    format: Format = Format.STANDARD
    concurrency: int = 16
    timeout_ms: int = 15_000
    retries_ms: tuple[int, ...] = DEFAULT_RETRIES_MS
    rate_per_second: float | None = None
    headers: tuple[tuple[str, str], ...] | None = None
    reject_422: bool = False
    reject_4xx: bool = False
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class WebhookView:
    """A webhook as it is, without its secrets. `version` rises with each change; it is the ETag.

    `off_because` says why the broker has switched it off; empty otherwise. `public_keys` are those of key pairs, the
    newest first. `limit` is how many requests may run now (`concurrency` at most).
    """

    queue: str
    name: str
    settings: WebhookSettings
    version: int
    created_ms: int
    signing: Signing
    public_keys: tuple[str, ...] = ()
    off_because: str = ""
    circuit: Circuit = Circuit.CLOSED
    failing_since_ms: int | None = None
    in_flight: int = 0
    limit: int = 1
    accepted: int = 0
    rejected: int = 0
    failed: int = 0


class WebhookMade(NamedTuple):
    """A webhook with the secret that the broker made for it: it is told once, here. None if the caller gave it."""

    view: WebhookView
    secret: str | None
    created: bool


class Attempt(NamedTuple):
    """One request. Without an answer `status` is None and `error` says why."""

    at_ms: int
    webhook_id: str
    topic: str
    partition: int
    offset: int
    delivery_count: int
    status: int | None
    duration_ms: int
    error: str
    verdict: Verdict


class Webhooks(Protocol):
    """Webhooks, as `broker.webhooks`.

    A missing queue is GROUP_ID_NOT_FOUND, a missing webhook RESOURCE_NOT_FOUND. Where webhooks are off, calls that
    send raise POLICY_VIOLATION. What a call says is durable when it returns.
    """

    async def put(
        self,
        queue: str,
        name: str,
        settings: WebhookSettings,
        *,
        secret: str | None = None,
        signing: Signing = Signing.HMAC,
        if_version: int | None = None,
    ) -> WebhookMade:
        """Create a webhook, or change it; requests under way end as they began. 0 in `if_version` creates only.

        `secret` None: the broker makes one for a new webhook, by `signing`, and an existing one keeps its own.
        Raises INVALID_REQUEST, POLICY_VIOLATION, THROTTLING_QUOTA_EXCEEDED for too many webhooks.
        """
        ...

    def get(self, queue: str, name: str) -> WebhookView:
        """Return a webhook."""
        ...

    def of_queue(self, queue: str) -> Sequence[WebhookView]:
        """Return the webhooks of a queue, by name."""
        ...

    async def delete(self, queue: str, name: str) -> None:
        """Delete a webhook. Requests under way end, and settle their records."""

    async def rotate_secret(
        self, queue: str, name: str, *, secret: str | None = None, signing: Signing | None = None
    ) -> WebhookMade:
        """Sign with another secret; the one before signs as well for `ROTATION_MS`. Raises INVALID_REQUEST."""
        ...

    async def enable(self, queue: str, name: str) -> WebhookView:
        """Switch a webhook on, and forget the failures of its endpoint."""
        ...

    async def test(self, queue: str, name: str) -> Attempt:
        """Send one request with a sample record, and return what the endpoint answered. It settles nothing."""
        ...

    def attempts(self, queue: str, name: str) -> Sequence[Attempt]:
        """Return the last attempts of this process, the newest first."""
        ...
