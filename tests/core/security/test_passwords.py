"""core.security.passwords: right and wrong, remembered until a change, and never more checks than allowed."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace

import pytest

from core.errors import BrokerError, ErrorCode
from core.security.passwords import Identity, Passwords
from core.security.principal import Principal
from core.security.scram import Mechanism, ScramCredential, matches

from .conftest import World

ALICE = Identity(Principal(name="alice"), by_password=True)


async def test_a_password_is_right_or_wrong(world: World) -> None:
    await world.users.create("alice", "a password")
    check = world.passwords.check
    assert await check("alice", "a password", "::1") == ALICE
    for user, password in (
        ("alice", "A password"),
        ("alice", ""),
        ("Alice", "a password"),
        ("alice", "x" * 2000),
    ):
        assert await check(user, password, "::1") is None


async def test_a_right_password_is_remembered_for_a_while(world: World) -> None:
    await world.users.create("alice", "a password")
    assert world.passwords.at_once("alice", "a password") is None
    await world.passwords.check("alice", "a password", "::1")
    assert world.passwords.at_once("alice", "a password") == ALICE
    assert world.passwords.at_once("alice", "b password") is None
    world.clock.advance(world.config.password_cache_ms / 1000)
    assert world.passwords.at_once("alice", "a password") is None


async def test_a_change_of_the_password_ends_what_is_remembered(world: World) -> None:
    await world.users.create("alice", "a password")
    await world.passwords.check("alice", "a password", "::1")
    # The same rows from the store are no change.
    await world.reload()
    assert world.passwords.at_once("alice", "a password") == ALICE
    await world.users.set_password("alice", "a password")
    assert world.passwords.at_once("alice", "a password") is None
    await world.passwords.check("alice", "a password", "::1")
    await world.users.delete("alice")
    assert world.passwords.at_once("alice", "a password") is None
    assert await world.passwords.check("alice", "a password", "::1") is None


async def test_a_token_is_the_password_of_its_owner_alone(world: World) -> None:
    await world.users.create("alice", None)
    await world.users.create("bob", None)
    info, text = await world.tokens.create("alice", "", 5000)
    assert await world.passwords.check("alice", text, "::1") == Identity(
        Principal(name="alice"), info.expires_ms, info.token_id
    )
    assert await world.passwords.check("bob", text, "::1") is None
    await world.tokens.delete(info.token_id)
    assert await world.passwords.check("alice", text, "::1") is None


async def test_checks_that_wait_are_counted_in_all_and_by_address(world: World) -> None:
    config = replace(world.config, max_password_checks=3, max_password_checks_per_address=2)
    passwords = Passwords(config, world.clock, world.users, world.tokens, world.threads)
    await world.users.create("alice", "a password")
    await passwords.check("alice", "a password", "192.0.2.9")
    # The thread is busy until all have been admitted or refused.
    decided = threading.Event()
    world.threads.submit(decided.wait, 30)
    hosts = ("192.0.2.1",) * 3 + ("192.0.2.2",) * 2
    begun = [
        asyncio.create_task(passwords.check("alice", f"wrong {n}", host)) for n, host in enumerate(hosts)
    ]
    async with asyncio.timeout(30):
        while sum(task.done() for task in begun) < 2:
            await asyncio.sleep(0)
    # What is remembered needs no check, however many wait.
    assert await passwords.check("alice", "a password", "192.0.2.1") == ALICE
    decided.set()
    results = await asyncio.gather(*begun, return_exceptions=True)
    refused = [
        isinstance(one, BrokerError) and one.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED for one in results
    ]
    assert refused == [False, False, True, False, True]
    assert await passwords.check("alice", "wrong", "192.0.2.1") is None


async def test_a_user_that_is_deleted_during_the_check_does_not_get_in(world: World) -> None:
    await world.users.create("alice", "a password")
    # The thread is busy until the user is deleted.
    gone = threading.Event()
    world.threads.submit(gone.wait, 30)
    checking = asyncio.create_task(world.passwords.check("alice", "a password", "::1"))
    await asyncio.sleep(0)
    await world.users.delete("alice")
    gone.set()
    assert await checking is None
    assert world.passwords.at_once("alice", "a password") is None


def counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the passwords that PBKDF2 is computed for from now on."""
    computed: list[str] = []

    def counted(mechanism: Mechanism, credential: ScramCredential, password: str) -> bool:
        computed.append(password)
        return matches(mechanism, credential, password)

    monkeypatch.setattr("core.security.passwords.matches", counted)
    return computed


async def test_a_wrong_password_is_computed_once_for_a_user_and_for_an_unknown_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = counting(monkeypatch)
    await world.users.create("alice", "a password")
    for user in ("alice", "unknown"):
        for _ in range(3):
            assert await world.passwords.check(user, f"wrong for {user}", "::1") is None
    assert computed == ["wrong for alice", "wrong for unknown"]
    # It may have become right.
    await world.users.set_password("alice", "wrong for alice")
    assert await world.passwords.check("alice", "wrong for alice", "::1") == ALICE
    await world.users.create("unknown", "wrong for unknown")
    assert await world.passwords.check("unknown", "wrong for unknown", "::1") is not None
    assert len(computed) == 4
    await world.passwords.check("alice", "x", "::1")
    world.clock.advance(world.config.password_cache_ms / 1000)
    await world.passwords.check("alice", "x", "::1")
    assert computed[4:] == ["x", "x"]


@pytest.mark.parametrize("user", ["alice", "unknown"])
async def test_an_address_with_many_wrong_passwords_gets_no_check(
    world: World, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    check, computed = world.passwords.check, counting(monkeypatch)
    await world.users.create("alice", "a password")
    assert await check("alice", "a password", "192.0.2.7") == ALICE
    world.clock.advance(world.config.password_cache_ms / 1000)
    computed.clear()
    refused: list[BrokerError] = []
    for number in range(100):
        try:
            assert await check(user, f"wrong {number}", "192.0.2.7") is None
        except BrokerError as error:
            refused.append(error)
    # Those of two seconds, and the one that is on the edge.
    assert len(computed) == 2 * world.config.max_wrong_passwords_per_address + 1
    assert (refused[0].code, refused[0].details["retry_after"]) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 1)
    # A password that was right before still is, and other addresses are not affected.
    assert await check("alice", "a password", "192.0.2.7") == ALICE
    assert await check(user, "wrong", "192.0.2.8") is None
    world.clock.advance(1)
    computed.clear()
    for number in range(100, 200):
        with suppress(BrokerError):
            await check(user, f"wrong {number}", "192.0.2.7")
    assert len(computed) == world.config.max_wrong_passwords_per_address


async def test_unknown_passwords_take_turns_on_the_event_loop(world: World) -> None:
    config = replace(world.config, max_password_checks=0)
    passwords = Passwords(config, world.clock, world.users, world.tokens, world.threads)
    turn, at = 0, []

    async def refused(number: int) -> None:
        with suppress(BrokerError):
            await passwords.check("alice", f"wrong {number}", "::1")
        at.append((turn, number))

    tasks = [asyncio.create_task(refused(number)) for number in range(10)]
    async with asyncio.timeout(30):
        while not all(task.done() for task in tasks):
            turn += 1
            await asyncio.sleep(0)
    assert [number for _, number in at] == list(range(10))
    assert len({turn for turn, _ in at}) == 10
