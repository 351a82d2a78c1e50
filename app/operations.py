"""For those who run it: is the process alive, is it ready for traffic, and what does it count."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from app.dependencies import BrokerDep, GatewayDep
from app.metrics import Metrics
from app.native.schemas import Health

_EXAMPLE = "# HELP sluice_ready 1 while traffic is welcome.\n# TYPE sluice_ready gauge\nsluice_ready 1.0\n"

router = APIRouter(tags=["operations"])


@router.get("/livez", operation_id="getLiveness", response_model_exclude_none=True)
async def livez() -> Health:
    """The process answers: 200. A supervisor restarts it when this fails."""
    return Health(status="ok")


@router.get(
    "/readyz",
    operation_id="getReadiness",
    responses={503: {"model": Health}},
    response_model_exclude_none=True,
)
@router.get(
    "/healthz", operation_id="getHealth", responses={503: {"model": Health}}, response_model_exclude_none=True
)
async def readyz(broker: BrokerDep, gateway: GatewayDep, response: Response) -> Health:
    """Traffic is welcome: 200; the broker is starting or stopping: 503."""
    zookeeper = gateway.zookeeper_state()
    if broker.ready:
        return Health(status="ok", zookeeper=zookeeper)
    response.status_code = 503
    return Health(status="starting or stopping", zookeeper=zookeeper)


@router.get(
    "/metrics",
    operation_id="getMetrics",
    response_class=PlainTextResponse,
    responses={
        200: {
            "description": "Every metric, in the Prometheus text format, or in OpenMetrics if `Accept` asks for it.",
            "content": {
                "text/plain": {"schema": {"type": "string"}, "example": _EXAMPLE},
                "application/openmetrics-text": {"schema": {"type": "string"}},
            },
        }
    },
)
async def metrics(request: Request) -> Response:
    """What this process counts, for Prometheus: requests, bytes, latencies, logs, lag, the state of the process."""
    found = request.app.state.metrics
    assert isinstance(found, Metrics)
    text, media_type = await found.scrape(request.headers.get("accept", ""))
    return Response(text, headers={"content-type": media_type, "cache-control": "no-store"})
