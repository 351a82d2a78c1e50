"""core.security.logins: what is open ends with its user, its token, or its time, and nothing else does."""

from __future__ import annotations

import pytest

from core.metadata.users import load_users
from core.security.logins import OpenLogins
from core.security.passwords import Identity
from core.security.principal import Principal
from core.security.scram import Mechanism
from core.vocabulary.users import CredentialChange

from .conftest import World


@pytest.fixture
def ended() -> list[str]:
    return []


@pytest.fixture
def logins(world: World, ended: list[str]) -> OpenLogins:
    made = OpenLogins(world.clock)
    world.users.when_deleted(made.user_deleted)
    world.users.when_password_changed(made.password_changed)
    world.tokens.when_deleted(made.token_deleted)
    return made


def by_password(logins: OpenLogins, ended: list[str], name: str) -> None:
    logins.add(Identity(Principal(name=name), by_password=True), lambda: ended.append(name))


async def test_what_a_user_has_open_ends_with_it(world: World, logins: OpenLogins, ended: list[str]) -> None:
    await world.users.create("alice", None)
    await world.users.create("bob", None)
    by_password(logins, ended, "alice")
    by_password(logins, ended, "alice")
    by_password(logins, ended, "bob")
    await world.users.delete("alice")
    assert ended == ["alice", "alice"] and len(logins) == 1


async def test_what_is_open_by_a_token_ends_with_it(
    world: World, logins: OpenLogins, ended: list[str]
) -> None:
    await world.users.create("alice", None)
    by_password(logins, ended, "alice")
    made = [await world.tokens.create("alice", "", None) for _ in range(2)]
    for info, text in made:
        identity = world.passwords.token(text)
        assert identity is not None
        logins.add(identity, lambda token_id=info.token_id: ended.append(token_id))
    await world.tokens.delete(made[0][0].token_id)
    assert ended == [made[0][0].token_id] and len(logins) == 2
    await world.users.delete("alice")
    assert sorted(ended) == sorted([made[0][0].token_id, made[1][0].token_id, "alice"])


async def test_what_another_broker_has_deleted_ends_when_the_change_arrives(
    world: World, logins: OpenLogins, ended: list[str]
) -> None:
    for name in ("alice", "bob", "carol"):
        await world.users.create(name, None)
        by_password(logins, ended, name)
    info, text = await world.tokens.create("bob", "", None)
    identity = world.passwords.token(text)
    assert identity is not None
    logins.add(identity, lambda: ended.append("token"))
    # Deleted; without its token; deleted and created again.
    world.users.load({}, [("bob", world.clock.wall_ms()), ("carol", world.clock.wall_ms() + 1)], [])
    world.tokens.load([])
    assert sorted(ended) == ["alice", "carol", "token"]
    world.users.load({}, [("bob", world.clock.wall_ms()), ("carol", world.clock.wall_ms() + 1)], [])
    assert len(ended) == 3 and info.owner == "bob"


def change(name: str, mechanism: Mechanism, salted: bytes | None) -> CredentialChange:
    """A change over Kafka's API 51; without a salted password a deletion."""
    return CredentialChange(name, int(mechanism), 4096, b"salt", salted)


async def test_what_is_open_by_a_password_ends_when_it_is_changed(
    world: World, logins: OpenLogins, ended: list[str]
) -> None:
    await world.users.create("alice", None)
    await world.users.create("bob", "the password of bob")
    for name in ("alice", "bob"):
        by_password(logins, ended, name)
    _, text = await world.tokens.create("bob", "", None)
    identity = world.passwords.token(text)
    assert identity is not None
    logins.add(identity, lambda: ended.append("token"))
    await world.users.set_password("alice", "a first password")
    assert ended == [], "there was none before"
    await world.users.set_password("bob", "another password")
    assert ended == ["bob"] and len(logins) == 2


async def test_a_credential_that_is_replaced_or_removed_ends_logins_and_one_more_does_not(
    world: World, logins: OpenLogins, ended: list[str]
) -> None:
    await world.users.alter_credentials([change("alice", Mechanism.SHA_256, b"a" * 32)])
    by_password(logins, ended, "alice")
    await world.users.alter_credentials([change("alice", Mechanism.SHA_512, b"a" * 64)])
    assert ended == []
    await world.users.alter_credentials([change("alice", Mechanism.SHA_256, b"b" * 32)])
    assert ended == ["alice"]
    by_password(logins, ended, "alice")
    await world.users.alter_credentials([change("alice", Mechanism.SHA_512, None)])
    assert ended == ["alice", "alice"] and len(logins) == 0


async def test_a_password_that_another_broker_has_changed_ends_logins_when_the_change_arrives(
    world: World, logins: OpenLogins, ended: list[str]
) -> None:
    for name in ("alice", "bob"):
        await world.users.create(name, "the password of all")
        by_password(logins, ended, name)
    users, credentials, _ = await world.store.read(load_users)
    world.users.load({}, users, credentials)
    assert ended == []
    world.users.load(
        {}, users, [(*row[:2], b"another", *row[3:]) if row[0] == "bob" else row for row in credentials]
    )
    assert ended == ["bob"]


async def test_what_is_open_by_a_token_ends_with_its_time(
    world: World, logins: OpenLogins, ended: list[str]
) -> None:
    await world.users.create("alice", None)
    for ttl_ms in (1000, 2000):
        _, text = await world.tokens.create("alice", "", ttl_ms)
        identity = world.passwords.token(text)
        assert identity is not None
        logins.add(identity, lambda ttl_ms=ttl_ms: ended.append(str(ttl_ms)))
    by_password(logins, ended, "alice")
    world.clock.advance(1)
    logins.expire()
    assert ended == ["1000"] and len(logins) == 2


def test_what_has_ended_by_itself_is_forgotten(world: World, logins: OpenLogins, ended: list[str]) -> None:
    login = logins.add(Identity(Principal(name="alice"), 0), lambda: ended.append("alice"))
    login.close()
    login.close()
    logins.user_deleted("alice")
    logins.expire()
    assert ended == [] and len(logins) == 0
