"""core.security.tokens: shown once, kept as a digest, gone with their time, their owner, or on demand."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import BrokerError, ErrorCode

from .conftest import World

DAY_MS = 86_400_000


async def test_a_token_is_of_its_owner_also_after_a_restart(world: World, tmp_path: Path) -> None:
    await world.users.create("alice", None)
    info, text = await world.tokens.create("alice", "for the sensor", None)
    assert text.startswith(f"slc_{info.token_id}_") and len(text) == 4 + 12 + 1 + 43
    assert info.expires_ms == world.clock.wall_ms() + 90 * DAY_MS
    assert world.tokens.owner_of(text) == info
    await world.restart()
    assert world.tokens.owner_of(text) == info and world.tokens.all() == [info]
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert info.token_id.encode() in files and text[17:].encode() not in files


async def test_another_text_is_no_token(world: World) -> None:
    await world.users.create("alice", None)
    info, text = await world.tokens.create("alice", "", None)
    wrong = [
        "", text[:-1], text + "A", text.upper(), " " + text, text + "\n",
        f"slc_{'0' * 12}_{text[17:]}", f"slc_{info.token_id}_{'A' * 43}",
    ]  # fmt: skip
    assert [world.tokens.owner_of(one) for one in wrong] == [None] * len(wrong)


async def test_a_token_ends_with_its_time(world: World) -> None:
    await world.users.create("alice", None)
    _, text = await world.tokens.create("alice", "", 1000)
    _, forever = await world.tokens.create("alice", "", None, expires=False)
    world.clock.advance(0.999)
    assert world.tokens.owner_of(text) is not None
    world.clock.advance(0.001)
    assert world.tokens.owner_of(text) is None
    world.clock.advance(100 * 365 * 86_400)
    assert world.tokens.owner_of(forever) is not None
    await world.reload()
    assert world.tokens.owner_of(forever) is not None


async def test_a_token_that_is_deleted_is_not_valid(world: World) -> None:
    await world.users.create("alice", None)
    info, text = await world.tokens.create("alice", "", None)
    await world.tokens.delete(info.token_id)
    assert world.tokens.owner_of(text) is None
    await world.restart()
    assert world.tokens.owner_of(text) is None
    with pytest.raises(BrokerError) as caught:
        await world.tokens.delete(info.token_id)
    assert caught.value.code is ErrorCode.RESOURCE_NOT_FOUND


async def test_the_tokens_of_a_user_do_not_outlive_it(world: World) -> None:
    await world.users.create("alice", None)
    _, text = await world.tokens.create("alice", "", None)
    await world.users.delete("alice")
    assert world.tokens.all() == []
    # Another user of that name is not the same.
    await world.users.create("alice", None)
    assert world.tokens.owner_of(text) is None
    await world.restart()
    assert world.tokens.owner_of(text) is None


async def test_a_token_has_an_owner_and_a_short_description_and_there_are_few(world: World) -> None:
    with pytest.raises(BrokerError) as caught:
        await world.tokens.create("nobody", "", None)
    assert caught.value.code is ErrorCode.RESOURCE_NOT_FOUND
    await world.users.create("alice", None)
    for description in ("x" * 201, "a\nb"):
        with pytest.raises(BrokerError) as caught:
            await world.tokens.create("alice", description, None)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
    for _ in range(3):
        await world.tokens.create("alice", "", None)
    with pytest.raises(BrokerError) as caught:
        await world.tokens.create("alice", "", None)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
