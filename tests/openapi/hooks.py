"""What schemathesis needs to know beyond the document: a world to find things in, and patience that ends."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, unquote

import schemathesis
from schemathesis import Case, HookContext
from schemathesis.core import NotSet

# Things that are there, by the parameter that names them.
KNOWN = {"topic": "orders", "group": "billing", "consumer": "audit-1", "instance": "reader-1"}
CONTROL = re.compile(r"[/\x00-\x1f\x7f]")
LEGAL = {"topic": re.compile(r"[A-Za-z0-9._-]{1,249}")}
OTHERS = re.compile(r"[^/\x00-\x1f\x7f]{1,249}")
PATIENCE_MS = 20
WAITS = ("wait_ms", "timeout")
# These wait for seconds unless they are told not to.
WAITING = ("pollConsumer", "seekConsumer", "joinGroup", "syncGroup")
# How often the world is made again: tests delete what they find.
EVERY = 40
_calls = 0


@schemathesis.serializer("application/x-ndjson")
def lines(_context: Any, value: Any) -> bytes:
    """Newline-delimited JSON with one record: the document can only say that it is text."""
    return json.dumps({"value": value}).encode() + b"\n"


@schemathesis.hook
def before_call(context: HookContext, case: Case, kwargs: dict[str, Any]) -> None:
    """Name things that are there where any legal name would do, and wait for nothing."""
    global _calls
    base_url = kwargs.get("base_url") or case.operation.base_url
    if _calls % EVERY == 0 and base_url:
        make_world(base_url)
    _calls += 1
    for name, quoted in (case.path_parameters or {}).items():
        value = unquote(str(quoted))
        if name in KNOWN and LEGAL.get(name, OTHERS).fullmatch(value):
            case.path_parameters[name] = KNOWN[name]
        else:
            # Once a hook has changed a path, it is checked again, and %1F is taken for three letters.
            case.path_parameters[name] = quote(CONTROL.sub("-", value), safe="")
    for part in (case.query, case.body):
        if isinstance(part, dict):
            for name in WAITS:
                value = part.get(name)
                if isinstance(value, int | float) and not isinstance(value, bool) and value > PATIENCE_MS:
                    part[name] = PATIENCE_MS
    name = case.operation.definition.raw.get("operationId")
    if name == "proxyReadRecords" and case.query is not None:
        case.query.setdefault("timeout", PATIENCE_MS)
    if name in WAITING:
        if case.body is None or isinstance(case.body, NotSet):
            case.body = {}
        if isinstance(case.body, dict):
            case.body.setdefault("wait_ms", PATIENCE_MS)
    case.body = _whole(case.body)


def _whole(value: Any) -> Any:
    """Whole numbers without a point: JSON Schema takes 2.0 for one, no JSON writer sends it, and it is refused."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_whole(member) for member in value]
    return value


def make_world(base_url: str) -> None:
    """A topic with records, a group with a managed consumer and positions, an instance of v2."""
    call(base_url, "PUT", "/api/v1/topics/orders", {"partitions": 3})
    for partition in range(3):
        call(
            base_url,
            "POST",
            "/api/v1/topics/orders/records",
            {"key": "k", "value": {"n": 1}, "partition": partition},
        )
    call(base_url, "POST", "/api/v1/groups/billing/consumers", {"name": "audit-1", "topics": ["orders"]})
    call(base_url, "POST", "/api/v1/groups/billing/consumers/audit-1:poll", {"wait_ms": PATIENCE_MS})
    call(base_url, "POST", "/consumers/billing", {"name": "reader-1", "format": "json"})
    path = "/consumers/billing/instances/reader-1/assignments"
    call(base_url, "POST", path, {"partitions": [{"topic": "orders", "partition": 0}]})


def call(base_url: str, method: str, path: str, body: dict[str, Any]) -> None:
    """One call whose refusal does not matter: what was to be made may be there."""
    request = urllib.request.Request(
        base_url.rstrip("/") + path,
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method=method,
    )
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except urllib.error.HTTPError as refused:
        refused.close()
