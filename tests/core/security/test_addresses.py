"""Connections of IP addresses: how many are open, and how many are opened in a second."""

from __future__ import annotations

from core.clock import ManualClock
from core.config import Config
from core.security.addresses import Addresses
from core.security.quotas import QuotaTable
from core.vocabulary.quotas import CONNECTION_CREATION_RATE, IP


def test_an_address_has_its_own_count_in_either_form() -> None:
    addresses = Addresses(Config(max_connections_per_ip=2), ManualClock(), QuotaTable())
    assert addresses.admit("10.0.0.1") == ""
    assert addresses.admit("::ffff:10.0.0.1") == ""
    assert "2 connections are open" in addresses.admit("10.0.0.1")
    assert addresses.admit("10.0.0.2") == ""
    addresses.release("10.0.0.1")
    assert addresses.admit("10.0.0.1") == ""
    for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2"):
        addresses.release(host)
    assert len(addresses) == 0


def test_new_connections_beyond_the_quota_of_an_address_are_closed() -> None:
    clock, table = ManualClock(), QuotaTable()
    addresses = Addresses(Config(), clock, table)
    table.change(((IP, None),), {CONNECTION_CREATION_RATE: 10.0})
    table.change(((IP, "10.0.0.1"),), {CONNECTION_CREATION_RATE: 1.0})
    admitted = sum(not addresses.admit("10.0.0.1") for _ in range(100))
    # The window of ten seconds takes ten, and the one after them begins the wait.
    assert admitted == 11
    assert "1 connections per second" in addresses.admit("10.0.0.1")
    assert sum(not addresses.admit("10.0.0.2") for _ in range(1_000)) == 101
    clock.advance(20)
    assert addresses.admit("10.0.0.1") == ""
    # In the long run it is the rate.
    taken = 0
    for _ in range(1_000):
        clock.advance(0.1)
        taken += not addresses.admit("10.0.0.1")
    assert 90 <= taken <= 112


def test_a_quota_of_the_address_comes_before_the_default_and_that_before_the_setting() -> None:
    table = QuotaTable()
    addresses = Addresses(Config(max_connection_rate_per_ip=3), ManualClock(), table)

    def admitted(host: str) -> int:
        return sum(not addresses.admit(host) for _ in range(200))

    # Each window of ten seconds takes ten times the rate, and the one after them begins the wait.
    assert admitted("10.0.0.1") == 31
    table.change(((IP, None),), {CONNECTION_CREATION_RATE: 2.0})
    table.change(((IP, "10.0.0.3"),), {CONNECTION_CREATION_RATE: 5.0})
    assert (admitted("10.0.0.2"), admitted("10.0.0.3")) == (21, 51)
    table.change(((IP, "10.0.0.4"),), {CONNECTION_CREATION_RATE: 5.0})
    table.change(((IP, "10.0.0.4"),), {CONNECTION_CREATION_RATE: None})
    assert admitted("10.0.0.4") == 21
    table.change(((IP, None),), {CONNECTION_CREATION_RATE: None})
    table.change(((IP, "10.0.0.3"),), {CONNECTION_CREATION_RATE: None})
    assert admitted("10.0.0.5") == 31
