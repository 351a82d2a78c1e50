"""Which function serves which command. A new command is a function and a line here."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from core.broker.broker import Broker
from core.listeners.text import records

# Gives the payload, or a coroutine of it; raises BrokerError.
Handler = Callable[[Broker, Any], str | Coroutine[Any, Any, str]]

HANDLERS: dict[str, Handler] = {
    "PRODUCE": records.produce,
    "CONSUME": records.consume,
    "CREATE": records.create,
    "TOPICS": records.topics,
    "HELP": records.show_usage,
    "PING": records.ping,
}
