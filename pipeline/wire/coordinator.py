"""Which broker coordinates a group or a transactional id."""

from __future__ import annotations

from core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pipeline.wire.cluster import Cluster
from pipeline.wire.connection import Connection
from pipeline.wire.errors import refuse

FIND_COORDINATOR = 10
GROUP, TRANSACTIONAL_ID = 0, 1
_KINDS = ("group", "transactional id")


def coordinator(cluster: Cluster, key: str, kind: int) -> Connection:
    """Return a connection to the coordinator of a GROUP or a TRANSACTIONAL_ID. Raises WireError."""
    request = FindCoordinatorRequest(key=key, key_type=kind)
    answer = cluster.any_broker().request(FIND_COORDINATOR, request, FindCoordinatorResponse)
    refuse(answer.error_code, f"FindCoordinator of {_KINDS[kind]} {key}", answer.error_message)
    return cluster.connect(answer.host, answer.port)
