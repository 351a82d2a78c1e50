"""Requests to the HTTP API: what is sent, and which answers may pass."""

from __future__ import annotations

import json
import socket

import pytest

from pipeline.wire.connection import Timeouts
from pipeline.wire.errors import AuthenticationError, ConnectionLostError, WireError
from pipeline.wire.http import HttpApi, RefusedError
from pipeline.wire.security import Login, Security
from tests.pipeline.answering import answering


def test_a_request_has_a_body_of_json_and_the_login() -> None:
    login = Security(login=Login("PLAIN", "alice", "secret"))
    with answering(200, b'{"done": true}') as (url, asked):
        assert HttpApi(url + "/base", security=login).call("POST", "/do", {"a": 1}) == {"done": True}
    ((path, headers, body),) = asked
    assert (path, json.loads(body)) == ("/base/do", {"a": 1})
    assert headers["Content-Type"] == "application/json"
    assert headers["Authorization"] == "Basic YWxpY2U6c2VjcmV0"


def test_a_request_without_login_and_body_has_neither() -> None:
    with answering(204, b"") as (url, asked):
        assert HttpApi(url).call("GET", "/look") == {}
    assert not {"Authorization", "Content-Type"} & asked[0][1].keys()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (503, b""),
        (500, b"<html>"),
        (429, b"{}"),
        (409, b'{"type": "/problems/concurrent-transactions", "detail": "try again"}'),
    ],
)
def test_what_may_pass_is_as_a_lost_connection(status: int, body: bytes) -> None:
    with (
        answering(status, body) as (url, _),
        pytest.raises(ConnectionLostError, match=f"POST .*/do: {status}"),
    ):
        HttpApi(url).call("POST", "/do")


def test_a_refusal_has_the_words_of_the_problem() -> None:
    body = b'{"type": "/problems/producer-fenced", "detail": "Another producer has the id."}'
    with answering(409, body) as (url, _), pytest.raises(RefusedError) as refused:
        HttpApi(url).call("POST", "/do")
    assert (refused.value.status, refused.value.kind) == (409, "producer-fenced")
    assert str(refused.value) == f"POST {url}/do: 409 producer-fenced: Another producer has the id."


def test_a_login_that_is_refused_is_told_as_such() -> None:
    with answering(401, b"{}") as (url, _), pytest.raises(AuthenticationError, match=r"POST .*/do: 401"):
        HttpApi(url).call("POST", "/do")


@pytest.mark.parametrize("body", [b"[]", b"<html>"])
def test_an_answer_that_is_no_json_object_is_an_error(body: bytes) -> None:
    with answering(200, body) as (url, _), pytest.raises(WireError, match="is no JSON object"):
        HttpApi(url).call("GET", "/look")


def test_a_server_that_is_away_or_silent_is_a_lost_connection() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        with pytest.raises(ConnectionLostError, match="refused"):
            HttpApi(f"http://127.0.0.1:{port}").call("GET", "/look")
        silent.listen()
        with pytest.raises(ConnectionLostError, match="timed out"):
            HttpApi(f"http://127.0.0.1:{port}", Timeouts(answer=0.05)).call("GET", "/look")
