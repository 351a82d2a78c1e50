"""core.security.passwords: right and wrong, remembered until a change, and never more checks than allowed."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

from core.errors import BrokerError, ErrorCode
from core.security.passwords import Identity, Passwords
from core.security.principal import Principal

from .conftest import World

ALICE = Identity(Principal(name="alice"))


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
    begun = [asyncio.create_task(passwords.check("alice", "wrong", host)) for host in ("192.0.2.1",) * 3]
    begun += [asyncio.create_task(passwords.check("alice", "wrong", host)) for host in ("192.0.2.2",) * 2]
    # What is remembered needs no check, however many wait.
    assert await passwords.check("alice", "a password", "192.0.2.1") == ALICE
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
