"""Check the JSON bodies of routes that FastAPI answers, before pydantic reads them."""

from __future__ import annotations

import re

import msgspec

from app.errors import Problem
from app.http.json_errors import fault_of, refuse_fault
from app.http.request import Request

_JSON_BODY = re.compile(rb"application/(json|[a-z0-9.!#$&^_-]+\+json)")
# A body of `null` and blanks is looked for up to this many bytes.
_LONGEST_NULL = 100
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode


def check_json_body(request: Request, body: bytes) -> None:
    """Refuse a body of a control route: 415 for its type, 400 for bytes that are no JSON."""
    essence, parameters = request.media_type()
    if not _JSON_BODY.fullmatch(essence):
        shown = essence.decode("latin-1")[:60] or "none"
        raise Problem(
            "unsupported-media-type",
            f"The body must be JSON (Content-Type: application/json), not {shown!r}.",
            headers={"accept": "application/json"},
        )
    check_charset(parameters)
    try:
        if not body.isascii():
            str(body, "utf-8")
        _decode_raw(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        refuse_fault(fault_of(body, error))
    if len(body) < _LONGEST_NULL and body.strip() == b"null":
        raise Problem("invalid-request", "The body must be an object; where it is optional, leave it out.")


def check_charset(parameters: bytes) -> None:
    """Refuse a text body in another charset than UTF-8. `parameters` follow the media type. Raises Problem (415)."""
    for part in parameters.split(b";") if parameters else ():
        name, _, value = part.partition(b"=")
        if name.strip().lower() == b"charset" and value.strip(b' "').lower() not in (
            b"utf-8",
            b"utf8",
            b"us-ascii",
        ):
            raise Problem(
                "unsupported-media-type", "Text must be UTF-8; leave the charset out, or send charset=utf-8."
            )
