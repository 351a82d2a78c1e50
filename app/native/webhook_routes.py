"""The rows of `app.native.routes` that belong to webhooks of queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.http.route import Body, Reply, Route
from app.native.refusals_on_writes import ON_WRITES
from core.vocabulary.capabilities import QUEUES

_PATH = "/queues/{queue}/webhooks"


def webhook_routes() -> tuple[Route[Callable[..., Any]], ...]:
    """Return the routes. Load FastAPI."""
    from app.native import webhook_schemas as schemas
    from app.native import webhooks

    return (
        Route(
            "GET", _PATH, webhooks.list_webhooks, "listWebhooks", "webhooks", "List the webhooks of a queue",
            needs=QUEUES, answers={200: schemas.WebhookList}, refuses=(404, 409, 503),
        ),
        Route(
            "PUT", f"{_PATH}/{{webhook}}", webhooks.put_webhook,
            "putWebhook", "webhooks", "Create a webhook, or change it",
            request=schemas.WebhookToPut, needs=QUEUES,
            answers={
                200: Reply("The webhook has these settings.", schemas.WebhookDetail),
                201: Reply("The webhook is new; this answer alone has its secret.", schemas.WebhookDetail),
            },
            refuses=(404, 409, 429, *ON_WRITES),
        ),
        Route(
            "GET", f"{_PATH}/{{webhook}}", webhooks.get_webhook, "getWebhook", "webhooks", "Describe a webhook",
            needs=QUEUES, answers={200: schemas.WebhookDetail}, refuses=(404, 409, 503),
        ),
        Route(
            "DELETE", f"{_PATH}/{{webhook}}", webhooks.delete_webhook,
            "deleteWebhook", "webhooks", "Delete a webhook",
            needs=QUEUES, answers={204: None}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "POST", f"{_PATH}/{{webhook}}:test", webhooks.test_webhook,
            "testWebhook", "webhooks", "Send a sample record",
            needs=QUEUES, answers={200: schemas.WebhookAttempt}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "POST", f"{_PATH}/{{webhook}}:rotate-secret", webhooks.rotate_webhook_secret,
            "rotateWebhookSecret", "webhooks", "Sign with another secret",
            request=Body({"application/json": schemas.SecretToRotate}, optional=True), needs=QUEUES,
            answers={200: schemas.WebhookDetail}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "POST", f"{_PATH}/{{webhook}}:enable", webhooks.enable_webhook,
            "enableWebhook", "webhooks", "Switch a webhook on again",
            needs=QUEUES, answers={200: schemas.WebhookDetail}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "GET", f"{_PATH}/{{webhook}}/attempts", webhooks.list_webhook_attempts,
            "listWebhookAttempts", "webhooks", "List the last attempts of a webhook",
            needs=QUEUES, answers={200: schemas.WebhookAttempts}, refuses=(404, 409, 503),
        ),
    )  # fmt: skip
