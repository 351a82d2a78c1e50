"""Names for the inline schemas of the OpenAPI document, so that generated clients get types with names.

A generator makes a type of an inline enumeration as well, but calls it by the place where it found it, and makes
another one at the next place. Here each set of words has one name, for both surfaces.
"""

from __future__ import annotations

from typing import Any

_REF = "#/components/schemas/{}"
# Sets of words by name. A set that is not here is left where it stands; a test finds it.
ENUMS: dict[str, tuple[str, ...]] = {
    "Acks": ("0", "1", "all", "-1"),
    "AclOperation": (
        "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
    ),
    "AclPattern": ("LITERAL", "PREFIXED"),
    "AclPatternToFind": ("MATCH", "LITERAL", "PREFIXED"),
    "AclPermission": ("DENY", "ALLOW"),
    "AclResource": ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"),
    "BrokerConnection": ("connected", "not connected", "unreachable"),
    "ConfigSource": ("topic", "broker", "default"),
    "ConsumerState": ("unsubscribed", "joining", "stable", "assigned", "fenced"),
    "EncodingOfHeader": ("utf8", "base64"),
    "EncodingOfQuery": ("utf8", "text", "base64", "binary"),
    "EncodingRead": ("json", "utf8", "base64"),
    "EncodingToRead": ("auto", "json", "text", "utf8", "base64"),
    "EncodingToWrite": ("json", "utf8", "text", "base64", "binary"),
    "GroupMemberKind": ("classic", "consumer"),
    "GroupState": (
        "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable", "Dead",
    ),
    "HealthStatus": ("ok", "cluster unreachable", "starting or stopping"),
    "IsolationLevel": ("read_committed", "read_uncommitted"),
    "QueueBlocked": ("in-flight-limit", "key-order", "paused", "unserved"),
    "QueueOrder": ("none", "key"),
    "QueueRecordCause": ("rejected", "limit", "expired", "lost"),
    "QueueRecordState": ("available", "leased", "delayed", "archiving", "settled"),
    "QuotaEntityType": ("user", "client-id", "ip"),
    "RedriveState": ("running", "done", "cancelled", "failed"),
    "ReplicaRole": ("leader", "follower"),
    "ResetTarget": ("earliest", "latest"),
    "SettleOutcome": ("settled", "already-settled", "late", "lease-lost", "gone", "invalid"),
    "TimestampType": ("CreateTime", "LogAppendTime"),
    "TransactionState": (
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
    ),
    "WebhookCircuit": ("closed", "open", "half-open"),
    "WebhookFormat": ("standard-webhooks", "cloudevents-binary", "cloudevents-structured", "raw"),
    "WebhookSigning": ("hmac-sha256", "ed25519"),
    "WebhookVerdict": ("accepted", "rejected", "retried", "released", "switched-off"),
    "ZooKeeperState": ("away", "registering", "registered", "held by another broker"),
}  # fmt: skip
_BOUNDS = (
    ("minimum", "minimum", 0), ("maximum", "maximum", 0),
    ("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1),
)  # fmt: skip
_NAMES = {frozenset(words): name for name, words in ENUMS.items()}


def name_enums(document: dict[str, Any]) -> None:
    """Put each known set of words among the components, and a reference in its place; a title is the name."""
    used: set[str] = set()
    _replace(document, used)
    schemas = document["components"]["schemas"]
    for name in used:
        schemas[name] = {"title": name, "type": "string", "enum": list(ENUMS[name])}
    for name, schema in schemas.items():
        schema.setdefault("title", name)


def whole_bounds(node: Any) -> None:
    """Write the bounds of whole numbers as whole numbers: as floats, those of 64 bits are not what they say."""
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        whole_bounds(child)
    if isinstance(node, dict) and node.get("type") == "integer":
        for name, bound, step in _BOUNDS:
            if name in node:
                node[bound] = int(node.pop(name)) + step


def _replace(node: Any, used: set[str]) -> None:
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        _replace(child, used)
    if not isinstance(node, dict):
        return
    words = node.get("enum")
    if isinstance(words, list) and (name := _NAMES.get(frozenset(words))) is not None:
        node.pop("enum")
        node.pop("type", None)
        node.pop("title", None)
        node["$ref"] = _REF.format(name)
        used.add(name)
