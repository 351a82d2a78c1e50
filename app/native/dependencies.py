"""What FastAPI's routes need, handed to them: the gateway and its broker."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from app.http.request import invalid_parameter
from app.shared import Gateway
from core.broker.broker import Broker


async def gateway(request: Request) -> Gateway:
    """The gateway that this application was made with."""
    found = request.app.state.gateway
    assert isinstance(found, Gateway)
    return found


async def broker(request: Request) -> Broker:
    """Return the broker of this application."""
    return (await gateway(request)).broker


async def known_parameters_only(request: Request) -> None:
    """Refuse a query parameter that the route does not take, or that stands twice: a typing error does harm.

    `?dry_ran=true` must not delete anything.
    """
    if not request.scope["query_string"]:
        return
    known = {one.alias for one in request.scope["route"].dependant.query_params}
    seen = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            takes = ", ".join(sorted(known)) or "none"
            raise invalid_parameter(
                name[:60], f"There is no parameter {name[:60]!r} here; known are: {takes}."
            )
        if name in seen:
            raise invalid_parameter(name, f"The parameter {name!r} stands there twice.")
        seen.add(name)


GatewayDep = Annotated[Gateway, Depends(gateway)]
BrokerDep = Annotated[Broker, Depends(broker)]
