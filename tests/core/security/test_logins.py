"""core.security.logins: what is open ends with its user, its token, or its time, and nothing else does."""

from __future__ import annotations

import pytest

from core.security.logins import OpenLogins
from core.security.passwords import Identity
from core.security.principal import Principal

from .conftest import World


@pytest.fixture
def ended() -> list[str]:
    return []


@pytest.fixture
def logins(world: World, ended: list[str]) -> OpenLogins:
    made = OpenLogins(world.clock)
    world.users.when_deleted(made.user_deleted)
    world.tokens.when_deleted(made.token_deleted)
    return made


def by_password(logins: OpenLogins, ended: list[str], name: str) -> None:
    logins.add(Identity(Principal(name=name)), lambda: ended.append(name))


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
