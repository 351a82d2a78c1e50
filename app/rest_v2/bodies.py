"""What a v2 request carries, its JSON body and its query; and the usual answer."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec

from app.errors import Problem
from app.http.json_body import check_charset
from app.http.json_errors import fault_of, refuse_fault
from app.http.request import Answer, Request
from app.rest_v2.errors import unprocessable
from app.rest_v2.media import accept_of, embedded_format

T = TypeVar("T")
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_encode = msgspec.json.Encoder().encode
_MAX_PARAMETERS = 64
_MAX_DIGITS = 19


def decoder_of(shape: type[T]) -> msgspec.json.Decoder[T]:
    """A decoder that takes numbers and switches as strings as well."""
    return msgspec.json.Decoder(shape, strict=False)


def decode(decoder: msgspec.json.Decoder[T], body: bytes, wrong_type_status: int = 422) -> T:
    """The body as its shape.

    Raises Problem: 400 when it is not JSON, 422 when it is not that shape, `wrong_type_status` when a value is not
    of the type that belongs there.
    """
    try:
        if not body.isascii():
            str(body, "utf-8")
        return decoder.decode(body)
    except UNREADABLE as error:
        fault = fault_of(body, error)
        refuse_fault(fault, wrong_type_status if fault.wrong_type else None)


async def read_json(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    """The JSON body of a control route. Raises Problem (400, 413, 415, 422) and ProxyError (422)."""
    found = await read_optional_json(request, decoder)
    if found is None:
        raise unprocessable("The request needs a body of JSON.")
    return found


async def read_optional_json(request: Request, decoder: msgspec.json.Decoder[T]) -> T | None:
    """The same where a body may be left out; then None."""
    body = await request.body()
    if not body or body.isspace():
        return None
    content_type = request.headers.get(b"content-type", b"")
    embedded_format(content_type)
    check_charset(content_type.partition(b";")[2])
    return decode(decoder, body)


def query_of(request: Request) -> dict[str, str]:
    """Return the query parameters by name. Unknown ones are ignored, as on the other proxies."""
    text = request.scope["query_string"]
    if not text:
        return {}
    try:
        return dict(
            parse_qsl(
                text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS
            )
        )
    except (UnicodeDecodeError, ValueError):
        raise Problem(
            "malformed-request", "The query string cannot be read: it must be percent-encoded UTF-8."
        ) from None


def number_in(query: dict[str, str], name: str, default: int, highest: int) -> int:
    """A whole number of the query, at most `highest`; `default` where there is none, or one below 1 (`-1`).

    A client may ask for more than is given: that is a hint here, not a contract. Raises ProxyError (422).
    """
    text = query.get(name, "")
    if not text:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS):
        raise unprocessable(f"{name} must be a whole number, not {text[:40]!r}.")
    number = int(text)
    return default if number < 1 else min(number, highest)


def json_answer(request: Request, value: object) -> Answer:
    """200 with a value as JSON, under the media type that the client takes. Raises Problem (406)."""
    return Answer(200, _encode(value), accept_of(request.headers.get(b"accept", b"")).any())


def no_content() -> Answer:
    """204."""
    return Answer(204, b"")
