"""The shapes of webhooks. Secrets and values of headers are written, never read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StrictBool, StrictFloat, StrictInt, StrictStr

from app.native.schemas import Shape
from core.vocabulary.webhooks import (
    MAX_CONCURRENCY,
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    MAX_RETRIES,
    MAX_RETRY_MS,
    MAX_TIMEOUT_MS,
    MAX_URL,
    MIN_TIMEOUT_MS,
    WebhookSettings,
)

_DEFAULT = WebhookSettings("")
FormatName = Literal["standard-webhooks", "cloudevents-binary", "cloudevents-structured", "raw"]
SigningName = Literal["hmac-sha256", "ed25519"]
CircuitName = Literal["closed", "open", "half-open"]
VerdictName = Literal["accepted", "rejected", "retried", "released", "switched-off"]
_Pause = Annotated[StrictInt, Field(ge=0, le=MAX_RETRY_MS)]
_HeaderText = Annotated[StrictStr, Field(max_length=MAX_HEADER_BYTES)]
_Secret = Annotated[
    SecretStr | None,
    Field(
        max_length=200,
        description="`whsec_` and base64 of 24 to 64 bytes, or a private key `whsk_…`. Without it the broker makes "
        "one, and the answer has it once.",
    ),
]


def _example(**example: Any) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": [example]})


class WebhookToPut(Shape):
    """The settings of a webhook. What is left out has its default; `secret` and `headers` stay as they are."""

    model_config = _example(url="https://example.org/hook", concurrency=4)

    url: StrictStr = Field(
        max_length=MAX_URL, description="Where to POST. Shown to those that may see settings."
    )
    format: FormatName = "standard-webhooks"
    signing: SigningName = Field(
        "hmac-sha256", description="How the secret of a new webhook is made, if the body has none."
    )
    secret: _Secret = None
    concurrency: Annotated[StrictInt, Field(ge=1, le=MAX_CONCURRENCY)] = _DEFAULT.concurrency
    timeout_ms: Annotated[StrictInt, Field(ge=MIN_TIMEOUT_MS, le=MAX_TIMEOUT_MS)] = _DEFAULT.timeout_ms
    retries_ms: Annotated[list[_Pause], Field(min_length=1, max_length=MAX_RETRIES)] = Field(
        list(_DEFAULT.retries_ms),
        description="The pauses after the first, second … attempt; the last one repeats.",
    )
    rate_per_second: Annotated[StrictInt | StrictFloat, Field(ge=0.001, le=100_000)] | None = None
    headers: Annotated[dict[StrictStr, _HeaderText], Field(max_length=MAX_HEADERS)] | None = Field(
        None, description="Headers to send along. Their values are never shown."
    )
    reject_422: StrictBool = Field(False, description="Give a record up at once if the endpoint answers 422.")
    reject_4xx: StrictBool = Field(
        False, description="The same for all of 4xx but 408, 410, 425 and 429; they are retried else."
    )
    enabled: StrictBool = True


class WebhookDetail(BaseModel):
    """A webhook, without its secrets. `header_names` are the headers that are sent along."""

    queue: str
    webhook: str
    version: int
    created: str | None
    url: str
    format: FormatName
    signing: SigningName
    public_keys: list[str] = Field(description="`whpk_…` of key pairs, the newest first.")
    secret: str | None = Field(
        None, description="The secret that this request has made: the only time that it is shown."
    )
    concurrency: int
    timeout_ms: int
    retries_ms: list[int]
    rate_per_second: float | None
    header_names: list[str]
    reject_422: bool
    reject_4xx: bool
    enabled: bool
    off_because: str | None = Field(description="Why the broker has switched it off.")
    circuit: CircuitName = Field(description="open: the endpoint fails, and nothing is sent.")
    failing_since: str | None
    in_flight: int
    limit: int = Field(description="Requests that may run now.")
    accepted: int
    rejected: int
    failed: int


class WebhookList(BaseModel):
    """The webhooks of a queue, by name."""

    items: list[WebhookDetail]


class SecretToRotate(Shape):
    """The next secret; without one the broker makes it."""

    model_config = _example(signing="ed25519")

    secret: _Secret = None
    signing: Annotated[SigningName | None, Field(description="Null: as the secret before.")] = None


class WebhookAttempt(BaseModel):
    """One request. Without an answer `status` is null and `error` says why."""

    at: str | None
    webhook_id: str
    topic: str
    partition: int
    offset: int
    delivery_count: int
    status: int | None
    duration_ms: int
    error: str | None
    verdict: VerdictName


class WebhookAttempts(BaseModel):
    """The last attempts of this process, the newest first."""

    items: list[WebhookAttempt]
