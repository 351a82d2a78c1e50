"""The commands of group members: JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT, and OFFSET."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.line_protocol import codec as text

if TYPE_CHECKING:
    from core.line_protocol.listener import TextSession

# What the protocol calls a strategy, and what Kafka's clients call it.
_STRATEGIES = {"": "", "round_robin": "roundrobin", "range": "range"}


async def join(session: TextSession, command: text.Join) -> str:
    """Join, or hear again what the present generation is."""
    given = await session.broker.groups.lines.join(
        command.group,
        command.topic,
        command.consumer_id,
        _STRATEGIES[command.assignor],
        session.peer_host,
    )
    return text.assigned(given.generation, given.partitions)


async def sync(session: TextSession, command: text.Member) -> str:
    """The assignment of a generation that is still the present one."""
    given = await session.broker.groups.lines.sync(*command)
    return text.assigned(given.generation, given.partitions)


def heartbeat(session: TextSession, command: text.Member) -> str:
    """The member lives."""
    session.broker.groups.lines.heartbeat(*command)
    return text.HEARTBEAT_OK


async def leave(session: TextSession, command: text.Member) -> str:
    """The member goes."""
    await session.broker.groups.lines.leave(*command)
    return text.LEFT


async def commit(session: TextSession, command: text.Commit) -> str:
    """Keep where the group reads next."""
    await session.broker.groups.lines.commit(*command)
    return text.COMMITTED


def offset(session: TextSession, command: text.Offset) -> str:
    """Where the group reads next."""
    return text.committed(session.broker.groups.lines.committed(*command))
