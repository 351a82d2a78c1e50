"""The router that is made from rows: by prefix, path and method."""

from __future__ import annotations

import pytest

from app.errors import Problem
from app.http.request import Answer, Request
from app.http.route import Found, Handle, Route, RouteTable


async def read(request: Request, segments: list[str]) -> Answer:
    """Read."""
    return Answer(200, b"")


async def write(request: Request, segments: list[str]) -> Answer:
    """Write."""
    return Answer(200, b"")


def row(method: str, path: str, handle: Handle) -> Route[Handle]:
    return Route(method, path, handle, "name", "tag", "summary", answers={200: None})


TABLE = RouteTable(
    ("/api/v1", [row("GET", "/topics/{topic}/records", read), row("POST", "/topics/{topic}/records", write)]),
    ("", [row("GET", "/", read), row("GET", "/livez", read)]),
)


@pytest.mark.parametrize(
    ("method", "path", "found"),
    [
        ("GET", "/api/v1/topics/a/records", (read, ["topics", "a", "records"])),
        ("HEAD", "/api/v1/topics/a/records", (read, ["topics", "a", "records"])),
        ("POST", "/api/v1/topics//records", (write, ["topics", "", "records"])),
        ("GET", "/livez", (read, ["livez"])),
        ("GET", "/", (read, [""])),
    ],
)
def test_a_row_takes_the_paths_of_its_shape(method: str, path: str, found: tuple[Handle, list[str]]) -> None:
    got = TABLE.find(method, path)
    assert got is not None
    assert (got.handle, got.segments) == found


def test_a_request_is_counted_under_the_path_of_its_row() -> None:
    segments = ["topics", "a", "records"]
    wanted = Found(read, segments, "/api/v1/topics/{topic}/records")
    assert TABLE.find("GET", "/api/v1/topics/a/records") == wanted


@pytest.mark.parametrize(
    "path", ["/topics/a/records", "/api/v1/topics/a", "/api/v1/topics/a/records/", "/livez/x", ""]
)
def test_other_paths_are_left_to_others(path: str) -> None:
    assert TABLE.find("GET", path) is None


def test_another_method_is_refused_with_those_that_the_path_takes() -> None:
    with pytest.raises(Problem) as refused:
        TABLE.find("DELETE", "/api/v1/topics/a/records")
    assert refused.value.status == 405
    assert refused.value.headers["allow"] == "GET, POST"
