"""What a listener may be bound to, and the line that says why not."""

from __future__ import annotations

import socket

import pytest

from core.config import Endpoint
from core.errors import StartupError
from core.listeners.sockets import bind_socket


@pytest.mark.parametrize("scheme", ["http", "kafka"])
def test_a_host_that_does_not_exist_is_one_line(scheme: str) -> None:
    with pytest.raises(
        StartupError, match=rf"Cannot listen on {scheme}://no-such-host\.invalid:1: .+ with --l"
    ):
        bind_socket(Endpoint(scheme, "no-such-host.invalid", 1))


def test_a_name_with_both_kinds_of_addresses_is_bound_to_ipv4() -> None:
    with bind_socket(Endpoint("kafka", "localhost", 0)) as bound:
        assert bound.getsockname()[0] == "127.0.0.1"


def test_an_ipv6_address_is_bound() -> None:
    with bind_socket(Endpoint("kafka", "::1", 0)) as bound:
        assert bound.family == socket.AF_INET6


def test_a_taken_port_and_a_foreign_address_are_refused_with_the_reason() -> None:
    with bind_socket(Endpoint("http", "127.0.0.1", 0), backlog=1) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartupError) as refused:
            bind_socket(Endpoint("http", "127.0.0.1", port))
    assert str(refused.value) == (
        f"Cannot listen on http://127.0.0.1:{port}: the port is taken. Stop the process that uses it, or choose "
        "another with --listener http://HOST:PORT."
    )
    with pytest.raises(
        StartupError, match=r"http://192\.0\.2\.1:0: Cannot assign requested address\. Choose"
    ):
        bind_socket(Endpoint("http", "192.0.2.1", 0))


def test_a_socket_for_ipv6_alone_leaves_ipv4_to_another() -> None:
    with (
        bind_socket(Endpoint("http", "0.0.0.0", 0), backlog=1) as one,
        bind_socket(Endpoint("http", "::", one.getsockname()[1]), backlog=1, only_ipv6=True) as other,
    ):
        assert one.getsockname()[1] == other.getsockname()[1]
