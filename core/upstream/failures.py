"""Errors of a gateway's own: what is not at hand, and what a cluster of other brokers cannot answer."""

from __future__ import annotations

from core.client.failures import error_code
from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition


class NotAtHandError(BrokerError):
    """A synchronous call for something that was not brought to hand before; it may be tried again."""

    def __init__(self, what: str) -> None:
        super().__init__(ErrorCode.LEADER_NOT_AVAILABLE, f"{what} are not known here yet; try again.")


def no_topic(name: str, code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) -> BrokerError:
    """Return the error for a topic that the cluster does not have, or does not show to this gateway."""
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return BrokerError(
            code, f"The cluster does not let this gateway describe the topic {name!r}.", topic=name
        )
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
        return BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic named {name!r}.", topic=name
        )
    return BrokerError(code, f"The cluster does not show the topic {name!r} now: {code.name}.", topic=name)


def answer_error(number: int, message: str | None, otherwise: str) -> BrokerError:
    """Return the error of an answer with the cluster's own sentence, or `otherwise` with the code's name."""
    code = error_code(number)
    return BrokerError(code, message or f"{otherwise}: {code.name}.")


def about(tp: TopicPartition, error: BrokerError) -> BrokerError:
    """Return the error of a partition in the words that an embedded broker has for it."""
    if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return no_topic(tp.topic)
    return error
