"""docs/reference/errors.md: every kind of problem over HTTP, and every error code of Kafka."""

from __future__ import annotations

from app.errors import KINDS, STATUS_OF, slug_of
from app.reference.markdown import table
from core.errors import ErrorCode

_INTRODUCTION = """\
# Errors

Written by `sluice docs` from the code. A running gateway serves a page for each type below `/problems`.
[HTTP](../guides/http.md#errors) shows the form of an error, [REST proxy](../guides/rest-proxy.md) shows the
form of the v2 API.

## Problems that are not Kafka's
`type` is `/problems/` and the name.
"""
_KAFKA = """
## Error codes of Kafka
The Kafka port sends the code. The HTTP API sends the status, with `type`, `kafka_error` and `kafka_error_code`. A
client should repeat a request only if the error is retriable. OFFSET_OUT_OF_RANGE is 410 below the start of the log
and 416 above its end. Sluice does not return every code: the table is the whole protocol's.
"""


def page() -> str:
    """Return the page."""
    kinds = [(f"`{name}`", str(kind.status), kind.title, kind.advice) for name, kind in KINDS.items()]
    codes = [
        (
            str(int(code)),
            code.name,
            str(STATUS_OF[code]),
            f"`{slug_of(code)}`",
            "yes" if code.retriable else "",
        )
        for code in sorted(ErrorCode)
        if code is not ErrorCode.NONE
    ]
    return (
        _INTRODUCTION
        + table(("type", "status", "title", "what to do"), kinds)
        + _KAFKA
        + table(("code", "name", "HTTP status", "type", "retriable"), codes)
    )
