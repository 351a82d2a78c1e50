"""Webhooks of queues: the broker POSTs each record to an endpoint, signed, and settles it by the answer.

curl -X PUT --json '{"url": "https://example.org/hook"}' …/queues/mail/webhooks/shop     201, with the secret
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import Path, Response

from app.http.parameters import PATH_NAME
from app.native.dependencies import BrokerDep
from app.native.queues import QueueName
from app.native.record_json import iso_time
from app.native.webhook_schemas import (
    SecretToRotate,
    WebhookAttempt,
    WebhookAttempts,
    WebhookDetail,
    WebhookList,
    WebhookToPut,
)
from core.vocabulary.webhooks import Attempt, Format, Signing, WebhookSettings, WebhookView

WebhookName = Annotated[
    str,
    Path(description="The webhook's name.", examples=["shop"], max_length=100, json_schema_extra=PATH_NAME),
]


async def list_webhooks(broker: BrokerDep, queue: QueueName) -> WebhookList:
    """The webhooks of a queue, by name. They share its records, as all receivers of a queue do."""
    return WebhookList(items=[_detail(view) for view in broker.webhooks.of_queue(queue)])


async def put_webhook(
    broker: BrokerDep, response: Response, queue: QueueName, webhook: WebhookName, wanted: WebhookToPut
) -> WebhookDetail:
    """Create a webhook (201), or change it (200). The answer that creates it has its secret, once.

    It leases records of the queue and POSTs each to `url`: 2xx accepts it, 410 switches the webhook off, all else
    releases it for the next attempt. While the endpoint fails nothing is leased, so deliveries are not counted.
    """
    settings = WebhookSettings(
        url=wanted.url,
        format=Format(wanted.format),
        concurrency=wanted.concurrency,
        timeout_ms=wanted.timeout_ms,
        retries_ms=tuple(wanted.retries_ms),
        rate_per_second=None if wanted.rate_per_second is None else float(wanted.rate_per_second),
        headers=None if wanted.headers is None else tuple(wanted.headers.items()),
        reject_422=wanted.reject_422,
        reject_4xx=wanted.reject_4xx,
        enabled=wanted.enabled,
    )
    secret = None if wanted.secret is None else wanted.secret.get_secret_value()
    made = await broker.webhooks.put(queue, webhook, settings, secret=secret, signing=Signing(wanted.signing))
    if made.created:
        response.status_code = 201
        response.headers["location"] = f"/api/v1/queues/{quote(queue, safe='')}/webhooks/{webhook}"
    return _detail(made.view, made.secret)


async def get_webhook(broker: BrokerDep, queue: QueueName, webhook: WebhookName) -> WebhookDetail:
    """A webhook: its settings, and how its endpoint does."""
    return _detail(broker.webhooks.get(queue, webhook))


async def delete_webhook(broker: BrokerDep, queue: QueueName, webhook: WebhookName) -> Response:
    """Delete a webhook. Requests under way end, and settle their records; the queue keeps the others."""
    await broker.webhooks.delete(queue, webhook)
    return Response(status_code=204)


async def test_webhook(broker: BrokerDep, queue: QueueName, webhook: WebhookName) -> WebhookAttempt:
    """Send one request with a sample record, and tell what the endpoint answered. No record is touched."""
    return _attempt(await broker.webhooks.test(queue, webhook))


async def rotate_webhook_secret(
    broker: BrokerDep, queue: QueueName, webhook: WebhookName, wanted: SecretToRotate | None = None
) -> WebhookDetail:
    """Sign with another secret. For a day requests have signatures of both, so that receivers can change."""
    wanted = wanted or SecretToRotate()
    made = await broker.webhooks.rotate_secret(
        queue, webhook,
        secret=None if wanted.secret is None else wanted.secret.get_secret_value(),
        signing=None if wanted.signing is None else Signing(wanted.signing),
    )  # fmt: skip
    return _detail(made.view, made.secret)


async def enable_webhook(broker: BrokerDep, queue: QueueName, webhook: WebhookName) -> WebhookDetail:
    """Switch a webhook on again, and forget the failures of its endpoint."""
    return _detail(await broker.webhooks.enable(queue, webhook))


async def list_webhook_attempts(broker: BrokerDep, queue: QueueName, webhook: WebhookName) -> WebhookAttempts:
    """The last hundred requests since the start of the process, the newest first; no bodies."""
    return WebhookAttempts(items=[_attempt(one) for one in broker.webhooks.attempts(queue, webhook)])


def _attempt(one: Attempt) -> WebhookAttempt:
    return WebhookAttempt(
        at=iso_time(one.at_ms),
        webhook_id=one.webhook_id,
        topic=one.topic,
        partition=one.partition,
        offset=one.offset,
        delivery_count=one.delivery_count,
        status=one.status,
        duration_ms=one.duration_ms,
        error=one.error or None,
        verdict=one.verdict.value,
    )


def _detail(view: WebhookView, secret: str | None = None) -> WebhookDetail:
    settings = view.settings
    return WebhookDetail(
        queue=view.queue,
        webhook=view.name,
        version=view.version,
        created=iso_time(view.created_ms),
        url=settings.url,
        format=settings.format.value,
        signing=view.signing.value,
        public_keys=list(view.public_keys),
        secret=secret,
        concurrency=settings.concurrency,
        timeout_ms=settings.timeout_ms,
        retries_ms=list(settings.retries_ms),
        rate_per_second=settings.rate_per_second,
        header_names=[name for name, _ in settings.headers or ()],
        reject_422=settings.reject_422,
        reject_4xx=settings.reject_4xx,
        enabled=settings.enabled,
        off_because=view.off_because or None,
        circuit=view.circuit.value,
        failing_since=None if view.failing_since_ms is None else iso_time(view.failing_since_ms),
        in_flight=view.in_flight,
        limit=view.limit,
        accepted=view.accepted,
        rejected=view.rejected,
        failed=view.failed,
    )
