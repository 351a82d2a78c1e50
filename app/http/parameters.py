"""Parameters that both surfaces take: names and numbers in paths, times, the id of a request.

The types are for the OpenAPI document; the handlers and the broker check the values. This module does not load
pydantic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from app.formats import FormatError, parse_time
from app.http.request import invalid_parameter, whole_number

MAX_OFFSET = 2**63 - 1
MAX_PARTITION = 2**31 - 1
# Names in paths, as JSON Schema: topic names are strict, a group id may be any text that a path can have.
TOPIC_NAME: dict[str, Any] = {"pattern": r"^[A-Za-z0-9._-]+$", "minLength": 1, "maxLength": 249}
PATH_NAME: dict[str, Any] = {"pattern": r"^[^/\x00-\x1f\x7f]+$", "minLength": 1}


def _text(about: str, example: str, **schema: Any) -> Meta:
    return Meta(description=about, examples=[example], extra_json_schema=schema)


# The parameters of paths by name, below FastAPI.
PATH_PARAMETERS: Mapping[str, object] = {
    "topic": Annotated[str, _text("The topic's name.", "orders", **TOPIC_NAME)],
    "partition": Annotated[
        int, Meta(ge=0, le=MAX_PARTITION, description="The partition, from 0.", examples=[0])
    ],
    "offset": Annotated[int, Meta(ge=0, description="The record's offset.", examples=[41])],
    "group": Annotated[str, _text("The consumer group.", "billing", **PATH_NAME)],
    "queue": Annotated[str, _text("The queue's name, which is that of a share group.", "mail", **PATH_NAME)],
    "instance": Annotated[str, _text("The consumer instance.", "reader-1", **PATH_NAME)],
}
RequestId = Annotated[
    str | UnsetType,
    Meta(
        description="A name for this request in the answer and in the logs, up to 128 of A–Z a–z 0–9 . _ : / + = @ "
        "-; without one, or with another, it gets its own."
    ),
]


class RequestIdHeader(Struct):
    """The header line that names a request."""

    request_id: RequestId = field(default=UNSET, name="X-Request-Id")


class AnsweredRequestId(Struct):
    """The header line of every answer."""

    request_id: Annotated[
        str, Meta(description="The id of the request: the one that it brought, or a new one.")
    ] = field(name="X-Request-Id")


def parse_moment(name: str, text: str) -> int:
    """Return a time in milliseconds since 1970; it is written so, or as ISO 8601. Raise Problem (422)."""
    if text.isascii() and text.isdigit():
        return whole_number(name, text, 0, MAX_OFFSET)
    try:
        # In a query, the plus sign of an offset arrives as a blank.
        return parse_time(text.replace(" ", "+") if "T" in text else text)
    except FormatError as error:
        raise invalid_parameter(name, f"{name} must be milliseconds since 1970 or a time: {error}.") from None
