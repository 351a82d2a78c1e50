"""Where in a JSON body a fault is, in words for people."""

from __future__ import annotations

import msgspec
import pytest

from app.errors import Problem
from app.http.json_errors import SEARCH_LIMIT, Fault, fault_of, path_at, refuse_fault


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"#", ()),
        (b'{"a":#', ("a",)),
        (b'{"a":[1,2,#', ("a", 2)),
        (b'{"a":[{"b":1},{"b":{"c":#', ("a", 1, "b", "c")),
        (b'{"a":{"b":1},"c":#', ("c",)),
        (b'{"a":1,#', ()),
        (b'{"a\\"[":"}]","b":#', ("b",)),
        ('{"é\\u00e9":#'.encode(), ("éé",)),
        (b"[[],[[]],[#", (2, 0)),
    ],
)
def test_the_path_to_a_byte_is_found(body: bytes, path: tuple[str | int, ...]) -> None:
    assert path_at(body, body.index(b"#")) == path


def test_a_byte_far_inside_is_not_searched_for() -> None:
    assert path_at(b'{"a":"' + b"x" * SEARCH_LIMIT, SEARCH_LIMIT + 1) == ()


def test_a_fault_has_a_json_pointer_and_a_plain_name() -> None:
    fault = Fault("Bad.", ("records", 3, "headers", 0, "a/b~c"), False)
    assert fault.pointer == "#/records/3/headers/0/a~1b~0c"
    assert fault.record == 3
    assert fault.field == "headers[0].a/b~c"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"n":"x"}', "It must be a whole number or null, not a string."),
        (b'{"m":1}', "There is no member named 'm' here."),
        (b"{", "The JSON ends too early."),
        (b'{"n":\\}', "malformed at byte 5"),
    ],
)
def test_what_msgspec_says_is_put_in_plain_words(body: bytes, words: str) -> None:
    class Shape(msgspec.Struct, forbid_unknown_fields=True):
        n: int | None = None

    decoder = msgspec.json.Decoder(Shape)
    with pytest.raises(msgspec.DecodeError) as caught:
        decoder.decode(body)
    assert words in fault_of(body, caught.value).detail


def test_a_recursion_error_is_too_deep() -> None:
    assert fault_of(b"[", RecursionError()).detail == "The JSON is nested too deep."


@pytest.mark.parametrize(("malformed", "status"), [(True, 400), (False, 422)])
def test_what_cannot_be_read_is_400_and_what_is_not_wanted_422(malformed: bool, status: int) -> None:
    with pytest.raises(Problem) as caught:
        refuse_fault(Fault("Bad.", ("records", 2, "key"), malformed))
    assert caught.value.status == status
    assert caught.value.detail == "Record 2, field 'key': Bad."
    assert caught.value.errors == [
        {"detail": "Bad.", "pointer": "#/records/2/key", "record": 2, "field": "key"}
    ]
