"""Requests written as plain data, sent to a broker as bytes, and their answers: `differential` and `record` use it.

A request is nested dicts and lists, by the field names of core/protocol/messages; what is left out has its default.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from core.protocol.apis import API_VERSIONS, APIS
from core.protocol.codec import decode_response, encode_request
from core.protocol.header import decode_response_header, encode_request_header
from core.protocol.primitives import ProtocolError
from core.protocol.schema import fields_of
from tests.frames import connect, receive_frame, send_frame

KEYS = {api.name: api.key for api in APIS.values()}
SECONDS = 10.0

Data = Mapping[str, Any]
Request = Data | Callable[[int], Data]
"""A request, or what makes it from the version in which it is sent."""


def message(kind: type[Struct], data: Data) -> Struct:
    """Return a message of class `kind` with the values of `data`; AssertionError for a field it does not have."""
    fields = {field.name: field for field in fields_of(kind)}
    assert fields.keys() >= data.keys(), f"{kind.__name__} has no {sorted(data.keys() - fields.keys())}"
    values = {}
    for name, value in data.items():
        of = fields[name].struct
        if of is not None and isinstance(value, list):
            value = [message(of, one) for one in value]
        elif of is not None and value is not None:
            value = message(of, value)
        elif isinstance(value, bytes) and fields[name].kind == "records":
            value = memoryview(value)
        values[name] = value
    return kind(**values)


def plain(answer: Struct, version: int) -> dict[str, Any]:
    """Return the fields that a message has in this version, as nested dicts and lists; records as bytes."""
    values = {}
    for field in fields_of(type(answer)):
        if version not in field.versions:
            continue
        value = getattr(answer, field.name)
        if isinstance(value, list):
            value = [plain(one, version) if isinstance(one, Struct) else one for one in value]
        elif isinstance(value, Struct):
            value = plain(value, version)
        elif isinstance(value, memoryview | bytearray):
            value = bytes(value)
        values[field.name] = value
    return values


class Answer(NamedTuple):
    """One request as it was sent and its answer, without size prefixes.

    `body` is the answer as plain data; a text in its place says why there is none: the broker closed the
    connection, said nothing for `SECONDS`, or sent what the codec cannot read. `response` is None in the first two.
    """

    case: str
    key: int
    version: int
    request: bytes
    response: bytes | None
    body: dict[str, Any] | str


class Peer:
    """One connection to a broker, made again after the broker has closed it. Each answer is kept in `answers`.

    With `user` (name, password), each connection authenticates by SASL/PLAIN first, which is not kept.
    """

    def __init__(
        self, address: tuple[str, int], *, user: tuple[str, str] | None = None, client: str = "raw"
    ) -> None:
        self.address = address
        self.client = client
        self.answers: list[Answer] = []
        self._user = user
        self._socket: socket.socket | None = None
        self._correlation_id = 0

    def close(self) -> None:
        """Close the connection; the next request makes another one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def served(self) -> dict[int, range]:
        """Return the versions that the broker advertises, by API key."""
        body = self.exchange("", API_VERSIONS, 0, b"").body
        assert isinstance(body, dict), body
        return {api["api_key"]: range(api["min_version"], api["max_version"] + 1) for api in body["api_keys"]}

    def ask(self, case: str, api: str, version: int, request: Request) -> dict[str, Any]:
        """Send a request and keep its answer. Returns the answer as plain data; empty if there is none."""
        key = KEYS[api]
        data = request(version) if callable(request) else request
        body = encode_request(key, version, message(APIS[key].request_type, data))
        answer = self.exchange(case, key, version, body)
        self.answers.append(answer)
        return answer.body if isinstance(answer.body, dict) else {}

    def exchange(self, case: str, key: int, version: int, body: bytes) -> Answer:
        """Send the body of a request and wait for the answer; nothing is kept."""
        frame = self._frame(key, version, body)
        return self.exchange_frame(case, key, version, frame)

    def exchange_frame(self, case: str, key: int, version: int, frame: bytes) -> Answer:
        """Send a whole frame, which may be nonsense, and wait for the answer; nothing is kept."""
        self.send(frame)
        try:
            response = receive_frame(self._connection())
            why = "closed"
        except TimeoutError:
            response, why = None, "silent"
        if response is None:
            self.close()
            return Answer(case, key, version, frame, None, why)
        return Answer(case, key, version, frame, response, _decoded(key, version, response))

    def _frame(self, key: int, version: int, body: bytes) -> bytes:
        self._correlation_id += 1
        return encode_request_header(key, version, self._correlation_id, self.client) + body

    def open(self, *, authenticate: bool = True) -> None:
        """Connect, which a request does by itself; a connection that is to authenticate by hand is opened so."""
        self.close()
        self._socket = connect(self.address, SECONDS)
        if self._user is not None and authenticate:
            self._authenticate(*self._user)

    def send(self, frame: bytes) -> None:
        """Send a frame, with its size in front."""
        if self._socket is None:
            self.open()
        send_frame(self._connection(), frame)

    def _connection(self) -> socket.socket:
        assert self._socket is not None
        return self._socket

    def _authenticate(self, name: str, password: str) -> None:
        self.exchange("", 17, 1, b"\0\5PLAIN")
        token = f"\0{name}\0{password}".encode()
        answer = self.exchange("", 36, 0, struct.pack(">i", len(token)) + token).body
        assert isinstance(answer, dict), answer
        assert answer["error_code"] == 0, answer


def _decoded(key: int, version: int, response: bytes) -> dict[str, Any] | str:
    # A version that is not served is answered in version 0 of ApiVersions (KIP-511).
    known = key in APIS and APIS[key].has(version)
    version = version if known or key != API_VERSIONS else 0
    try:
        _, position = decode_response_header(key, version, response)
        return plain(decode_response(key, version, response, position), version)
    except (ProtocolError, KeyError):
        return "unreadable"
