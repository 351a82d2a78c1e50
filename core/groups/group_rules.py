"""The rules of a classic group that depend on its state alone: legal moves, and errors of known members."""

from __future__ import annotations

from typing import NamedTuple

from core.errors import ErrorCode
from core.vocabulary.groups import State

LEGAL_MOVES: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE}),
    State.DEAD: frozenset(),
}


class Refusals(NamedTuple):
    """The errors that a known member gets in one state, by request; NONE where the request is served."""

    sync: ErrorCode
    heartbeat: ErrorCode
    commit: ErrorCode


REFUSALS: dict[State, Refusals] = {
    # There is no known member: the check of the member id refuses the request first.
    State.EMPTY: Refusals(
        sync=ErrorCode.UNKNOWN_MEMBER_ID,
        heartbeat=ErrorCode.UNKNOWN_MEMBER_ID,
        commit=ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    # Members may still commit what they have read in the generation that ends.
    State.PREPARING_REBALANCE: Refusals(
        sync=ErrorCode.REBALANCE_IN_PROGRESS,
        heartbeat=ErrorCode.REBALANCE_IN_PROGRESS,
        commit=ErrorCode.NONE,
    ),
    # The member knows the new generation; the records that it has read belong to the previous one.
    State.COMPLETING_REBALANCE: Refusals(
        sync=ErrorCode.NONE, heartbeat=ErrorCode.NONE, commit=ErrorCode.REBALANCE_IN_PROGRESS
    ),
    State.STABLE: Refusals(sync=ErrorCode.NONE, heartbeat=ErrorCode.NONE, commit=ErrorCode.NONE),
    State.DEAD: Refusals(
        sync=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        heartbeat=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        commit=ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ),
}

# A new member does not know its id and cannot send heartbeats; Kafka's limit for it is five minutes as well.
NEW_MEMBER_TIMEOUT = 300.0
# After a pause the broker reads the requests that already are in its sockets within this time (seconds).
RESUME_GRACE = 1.0
# A round that no member has joined gets a next deadline no sooner than this, whatever the rebalance timeout is.
MIN_ROUND = 1.0
