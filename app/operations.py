"""Health for service managers: is the process alive, is it ready for traffic."""

from __future__ import annotations

from fastapi import APIRouter, Response

from app.dependencies import BrokerDep
from app.native.schemas import Health

router = APIRouter(tags=["operations"])


@router.get("/livez", operation_id="getLiveness")
async def livez() -> Health:
    """The process answers: 200. A supervisor restarts it when this fails."""
    return Health(status="ok")


@router.get("/readyz", operation_id="getReadiness", responses={503: {"model": Health}})
@router.get("/healthz", operation_id="getHealth", responses={503: {"model": Health}})
async def readyz(broker: BrokerDep, response: Response) -> Health:
    """Traffic is welcome: 200; the broker is starting or stopping: 503."""
    if broker.ready:
        return Health(status="ok")
    response.status_code = 503
    return Health(status="starting or stopping")
