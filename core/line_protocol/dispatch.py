"""Which function serves which command. A new command is a function and a line here."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from core.line_protocol import groups, records, replication

if TYPE_CHECKING:
    from core.line_protocol.listener import TextSession

# Gives the payload, or a coroutine of it; raises BrokerError.
Handler = Callable[["TextSession", Any], str | Coroutine[Any, Any, str]]

HANDLERS: dict[str, Handler] = {
    "PRODUCE": records.produce,
    "CONSUME": records.consume,
    "JOIN": groups.join,
    "SYNC": groups.sync,
    "HEARTBEAT": groups.heartbeat,
    "LEAVE": groups.leave,
    "COMMIT": groups.commit,
    "OFFSET": groups.offset,
    "REPLICA_FETCH": replication.replica_fetch,
    "SET_PARTITION_ROLE": replication.set_partition_role,
    "CREATE": records.create,
    "TOPICS": records.topics,
    "HELP": records.show_usage,
    "PING": records.ping,
}
