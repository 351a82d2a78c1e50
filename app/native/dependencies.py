"""What FastAPI passes to its routes: what the surfaces share, and the broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Header, Request

from app.http.capabilities import require_capability
from app.http.request import invalid_parameter
from app.shared import Shared
from core.facade import Facade
from core.security.guarded import Guarded
from core.transactions.long_transactions import CallersTransactions


async def shared(request: Request) -> Shared:
    """Return what the surfaces of this application share."""
    found = request.app.state.shared
    assert isinstance(found, Shared)
    return found


async def broker(request: Request) -> Facade:
    """Return the broker as the client of the request may use it."""
    return (await shared(request)).acting(request.scope)


async def long_transactions(request: Request) -> CallersTransactions:
    """Return the transactions of several requests as the client of the request may use them."""
    return (await shared(request)).long_transactions(request.scope)


async def named_transactions(request: Request) -> Callable[[], CallersTransactions]:
    """Return the same for a request that may be in a transaction: a gateway refuses those that are."""
    found = await shared(request)
    return lambda: found.long_transactions(request.scope)


async def guarded(request: Request) -> Guarded:
    """The same, with what only an administrator uses."""
    return (await shared(request)).acting(request.scope)


def capability(needed: str) -> Callable[[Request], Awaitable[None]]:
    """Return the dependency of a route that needs a capability."""

    async def check(request: Request) -> None:
        require_capability((await shared(request)).broker.capabilities, needed)

    return check


async def known_parameters_only(request: Request) -> None:
    """Refuse an unknown or repeated query parameter, because an ignored typing error does harm.

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
            raise invalid_parameter(name, f"The parameter {name!r} is given more than once.")
        seen.add(name)


TransactionHeader = Annotated[
    str | None,
    Header(
        alias="Transaction",
        description="The id of a transaction of several requests, from `POST /transactions:begin`.",
        min_length=1,
        max_length=1100,
    ),
]
SharedDep = Annotated[Shared, Depends(shared)]
BrokerDep = Annotated[Facade, Depends(broker)]
LongTransactionsDep = Annotated[CallersTransactions, Depends(long_transactions)]
NamedTransactionsDep = Annotated[Callable[[], CallersTransactions], Depends(named_transactions)]
GuardedDep = Annotated[Guarded, Depends(guarded)]
