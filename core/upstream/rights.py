"""Which rights on the cluster itself the principal of a gateway lacks: told at a start, before a caller finds out."""

from __future__ import annotations

from core.client.cluster import ClusterClient
from core.errors import BrokerError
from core.protocol.messages.describe_cluster import DescribeClusterRequest
from core.security.acl import Operation

# Kafka's number for "not asked for, or not known".
_NOT_TOLD = -(2**31)
_PATIENCE_MS = 5_000
# What a gateway does without each.
_EFFECTS = {
    Operation.DESCRIBE: "lists of groups have only those that it may describe",
    Operation.CREATE: "a topic can be created only if a rule on its name allows that",
}


async def missing_rights(cluster: ClusterClient) -> list[str]:
    """Return a sentence for each right on the cluster that the principal lacks.

    Nothing if the cluster does not tell (before Kafka 2.8), or does not answer: a start must not fail for that. A
    principal without DESCRIBE is not told about the others.
    """
    try:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        answer = await cluster.ask_any(request, timeout_ms=_PATIENCE_MS)
    except BrokerError:
        return []
    bits = answer.cluster_authorized_operations
    if answer.error_code or bits == _NOT_TOLD:
        return []
    lacking = [one for one in _EFFECTS if not bits >> one & 1]
    if Operation.DESCRIBE in lacking:
        lacking = [Operation.DESCRIBE]
    return [f"{one.name} on the cluster is missing: {_EFFECTS[one]}" for one in lacking]
