"""For those who run it: is the process alive, is it ready for traffic, and what does it count.

A surface of its own below FastAPI: supervisors ask every few seconds, and must not make a gateway load what its
clients do not need.
"""

from __future__ import annotations

from typing import Any

import msgspec

from app.http.request import Answer, Request
from app.http.router import method_not_allowed
from app.metrics import Metrics
from app.shared import Gateway

_encode = msgspec.json.Encoder().encode
_PATHS = frozenset({"/livez", "/readyz", "/healthz", "/metrics"})
_METHODS = ("GET", "HEAD")


class Operations:
    """The routes."""

    def __init__(self, gateway: Gateway, metrics: Metrics) -> None:
        self._gateway = gateway
        self._metrics = metrics

    def owns(self, path: str) -> bool:
        """Whether a path belongs to it."""
        return path in _PATHS

    async def answer(self, request: Request, path: str) -> Answer:
        """The answer to a request for such a path."""
        if request.scope["method"] not in _METHODS:
            raise method_not_allowed(request.scope["method"], _METHODS[:1])
        request.route = path
        if path == "/metrics":
            accept = request.headers.get(b"accept", b"").decode("latin-1")
            text, media_type = await self._metrics.scrape(accept)
            return Answer(200, text, media_type.encode(), ((b"cache-control", b"no-store"),))
        if path == "/livez":
            return Answer(200, _encode({"status": "ok"}))
        ready = self._gateway.broker.ready
        health = {"status": "ok" if ready else "starting or stopping"}
        if (zookeeper := self._gateway.zookeeper_state()) is not None:
            health["zookeeper"] = zookeeper
        return Answer(200 if ready else 503, _encode(health))


# --- in the OpenAPI document --------------------------------------------------------------------------------

_EXAMPLE = "# HELP sluice_ready 1 while traffic is welcome.\n# TYPE sluice_ready gauge\nsluice_ready 1.0\n"


def paths() -> dict[str, Any]:
    """What the document says of them."""
    ready = "Traffic is welcome: 200; the broker is starting or stopping: 503."
    refused = {"503": _health("Service Unavailable")}
    alive = "The process answers: 200. A supervisor restarts it when this fails."
    counted = (
        "What this process counts, for Prometheus: requests, bytes, latencies, logs, lag, the state of the "
        "process."
    )
    text = {
        "text/plain": {"schema": {"type": "string"}, "example": _EXAMPLE},
        "application/openmetrics-text": {"schema": {"type": "string"}},
    }
    metrics = "Every metric, in the Prometheus text format, or in OpenMetrics if `Accept` asks for it."
    well = _health("Successful Response")
    return {
        "/livez": _get("Livez", "getLiveness", alive, {"200": well}),
        "/readyz": _get("Readyz", "getReadiness", ready, {"200": well, **refused}),
        "/healthz": _get("Readyz", "getHealth", ready, {"200": well, **refused}),
        "/metrics": _get(
            "Metrics", "getMetrics", counted, {"200": {"description": metrics, "content": text}}
        ),
    }


def _health(description: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Health"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _get(summary: str, name: str, description: str, responses: dict[str, Any]) -> dict[str, Any]:
    operation = {"tags": ["operations"], "summary": summary, "description": description, "operationId": name}
    return {"get": {**operation, "responses": responses}}
