"""core.security.users: names and passwords, what a restart keeps, and what an unknown user is shown."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from core.errors import BrokerError, ErrorCode
from core.security.scram import Mechanism, matches, salted_password
from core.vocabulary.users import CredentialChange, CredentialInfo

from .conftest import World

PASSWORD = "canary-of-a-password"


def change(
    name: str, password: str | None = PASSWORD, mechanism: int = 1, iterations: int = 4096
) -> CredentialChange:
    if password is None:
        return CredentialChange(name, mechanism)
    salted = salted_password(Mechanism(mechanism), password, b"salt", iterations)
    return CredentialChange(name, mechanism, iterations, b"salt", salted)


async def refusal(work) -> ErrorCode:  # type: ignore[no-untyped-def]
    with pytest.raises(BrokerError) as caught:
        await work
    assert PASSWORD not in caught.value.message
    return caught.value.code


async def test_a_user_is_there_after_a_restart_and_no_password_is_on_the_disk(
    world: World, tmp_path: Path
) -> None:
    made = await world.users.create("alice", PASSWORD)
    assert made.credentials == (CredentialInfo(1, 4096), CredentialInfo(2, 4096))
    await world.restart()
    assert world.users.all() == [made] and "alice" in world.users
    for mechanism in Mechanism:
        credential, real = world.users.credential(mechanism, "alice")
        assert real and matches(mechanism, credential, PASSWORD)
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"alice" in files and PASSWORD.encode() not in files


async def test_a_password_is_changed_and_a_user_deleted(world: World) -> None:
    await world.users.create("alice", PASSWORD)
    await world.users.set_password("alice", "another password")
    credential, _ = world.users.credential(Mechanism.SHA_256, "alice")
    assert matches(Mechanism.SHA_256, credential, "another password")
    await world.users.delete("alice")
    assert not world.users
    await world.restart()
    assert world.users.all() == []
    assert await refusal(world.users.delete("alice")) is ErrorCode.RESOURCE_NOT_FOUND
    assert await refusal(world.users.set_password("alice", PASSWORD)) is ErrorCode.RESOURCE_NOT_FOUND


async def test_a_user_cannot_be_created_twice_at_once(world: World) -> None:
    results = await asyncio.gather(
        world.users.create("alice", PASSWORD), world.users.create("alice", PASSWORD), return_exceptions=True
    )
    failed = [one for one in results if isinstance(one, BrokerError)]
    assert [one.code for one in failed] == [ErrorCode.DUPLICATE_RESOURCE]


@pytest.mark.parametrize("name", ["", "ANONYMOUS", "a/b", "a:b", " a", "a ", "a\nb", "a\0", "x" * 256])
async def test_a_name_that_no_user_may_have(world: World, name: str) -> None:
    assert await refusal(world.users.create(name, PASSWORD)) is ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert await refusal(world.users.alter_credentials([change(name)])) is ErrorCode.UNACCEPTABLE_CREDENTIAL


@pytest.mark.parametrize("name", ["a", "a,b=c", "ünï@example.org", "x" * 255, "a b"])
async def test_other_names_are_taken(world: World, name: str) -> None:
    assert (await world.users.create(name, None)).name == name


@pytest.mark.parametrize("password", ["", "1234567", "x" * 1025, "12345678\n", "1234\x005678"])
async def test_a_password_that_is_not_taken(world: World, password: str) -> None:
    assert await refusal(world.users.create("alice", password)) is ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert not world.users


async def test_the_number_of_users_has_a_limit(world: World) -> None:
    for number in range(5):
        await world.users.create(f"user{number}", None)
    assert await refusal(world.users.create("one-more", None)) is ErrorCode.POLICY_VIOLATION
    assert await refusal(world.users.alter_credentials([change("one-more")])) is ErrorCode.POLICY_VIOLATION
    await world.users.alter_credentials([change("user0")])


async def test_credentials_come_and_go_as_kafka_has_it(world: World) -> None:
    await world.users.alter_credentials([change("alice"), change("alice", mechanism=2, iterations=8192)])
    assert world.users.get("alice").credentials == (CredentialInfo(1, 4096), CredentialInfo(2, 8192))
    await world.users.alter_credentials([change("alice", None)])
    assert world.users.get("alice").credentials == (CredentialInfo(2, 8192),)
    # The last one takes the user with it.
    await world.users.alter_credentials([change("alice", None, mechanism=2)])
    assert "alice" not in world.users
    await world.restart()
    assert world.users.all() == []


async def test_a_credential_that_kafka_refuses_is_refused(world: World) -> None:
    alter = world.users.alter_credentials
    assert await refusal(alter([change("a", iterations=4095)])) is ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert await refusal(alter([change("a", iterations=16385)])) is ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert await refusal(alter([change("a")._replace(salt=b"")])) is ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert await refusal(alter([change("a")._replace(mechanism=3)])) is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert await refusal(alter([change("a", None)])) is ErrorCode.RESOURCE_NOT_FOUND
    # All of a request or nothing.
    assert await refusal(alter([change("a"), change("b", None)])) is ErrorCode.RESOURCE_NOT_FOUND
    assert not world.users


async def test_the_salt_of_a_user_that_does_not_exist_stays_the_same(world: World) -> None:
    await world.users.create("alice", PASSWORD)
    before = [world.users.credential(mechanism, "nobody") for mechanism in Mechanism]
    await world.restart()
    after = [world.users.credential(mechanism, "nobody") for mechanism in Mechanism]
    assert before == after and not any(real for _, real in after)
    other, _ = world.users.credential(Mechanism.SHA_256, "somebody")
    assert other.salt != after[0][0].salt
    mine, _ = world.users.credential(Mechanism.SHA_256, "alice")
    assert len(mine.salt) == len(other.salt) and mine.iterations == other.iterations


async def test_a_change_is_carried_out_though_its_client_leaves(world: World) -> None:
    leaving = asyncio.create_task(world.users.create("alice", PASSWORD))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await world.users.close()
    assert "alice" in world.users
    await world.restart()
    assert "alice" in world.users
