"""The header `Transaction`: which requests it puts into a transaction of several requests, and no others.

A request whose route does not take it is refused. It would be written outside of the transaction otherwise, and stay
if that is aborted.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from app.errors import Problem, field_error
from app.http.capabilities import Capabilities, require_capability
from app.http.request import Request, invalid_parameter
from core.vocabulary.capabilities import TRANSACTIONS

NAME = "Transaction"
HEADER = b"transaction"
_TAKES = {
    "POST": re.compile(r"/api/v1/(topics/[^/]+/records|groups/[^/]+/consumers/[^/]+:ack)"),
    "PATCH": re.compile(r"/api/v1/groups/[^/]+/offsets"),
}


# Others are refused with 405, with the header and without.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})


def transaction_check(capabilities: Capabilities) -> Callable[[Request, str], None]:
    """Return the check of a request with the header, for a broker with these capabilities."""

    def check(request: Request, path: str) -> None:
        if request.scope["method"] in _METHODS:
            require_capability(capabilities(), TRANSACTIONS)
        check_transaction(request, path)

    return check


def check_transaction(request: Request, path: str) -> None:
    """Raise Problem (422) if a request has the header and its route does not take it, or if it has several."""
    if request.scope["method"] not in _METHODS:
        return
    lines = [value for name, value in request.scope["headers"] if name == HEADER]
    if len(lines) != 1 or not lines[0]:
        raise invalid_parameter(NAME, f"There are {len(lines)} {NAME} lines; a request has one, with an id.")
    takes = _TAKES.get(request.scope["method"])
    if takes is None or takes.fullmatch(path) is None:
        detail = (
            f"This request cannot be a part of a transaction; send it without the header {NAME}. Records are written "
            "in one by POST /api/v1/topics/{topic}/records, offsets by PATCH /api/v1/groups/{group}/offsets, batches "
            "are acknowledged by POST …:ack."
        )
        raise Problem("invalid-request", detail, errors=[field_error(detail, parameter=NAME)])


def transaction_of(request: Request) -> str | None:
    """Return the id of the transaction that a request belongs to; None if it has none."""
    value = request.headers.get(HEADER)
    return None if value is None else value.decode("latin-1")
