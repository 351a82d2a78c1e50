"""Access rules as JSON: the members and words of Kafka's tools, for the HTTP API and the command line."""

from __future__ import annotations

from collections.abc import Mapping

from core.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

FILTERS = (
    "resource_type",
    "resource_name",
    "pattern_type",
    "principal",
    "host",
    "operation",
    "permission_type",
)
"""The members of a rule, each of which a filter may name."""

Texts = Mapping[str, str | None]


def shown(acl: Acl) -> dict[str, str]:
    """Return a rule as JSON."""
    return {
        "resource_type": acl.resource_type.name,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission_type": acl.permission.name,
    }


def rule(given: Texts) -> Acl:
    """Return the rule of a JSON object. Its words must be known (KeyError); `check_acl` checks the rest.

    Left out: the name of the cluster, LITERAL, any host, ALLOW.
    """
    kind = ResourceType[given["resource_type"] or ""]
    name = given.get("resource_name")
    if name is None:
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else ""
    return Acl(
        kind,
        name,
        PatternType[given.get("pattern_type") or "LITERAL"],
        given["principal"] or "",
        given.get("host") or WILDCARD,
        Operation[given["operation"] or ""],
        Permission[given.get("permission_type") or "ALLOW"],
    )


def acl_filter(given: Texts) -> AclFilter:
    """Return a filter; what is left out or None fits all. Its words must be known (KeyError)."""
    return AclFilter(
        ResourceType[given.get("resource_type") or "ANY"],
        given.get("resource_name"),
        PatternType[given.get("pattern_type") or "ANY"],
        given.get("principal"),
        given.get("host"),
        Operation[given.get("operation") or "ANY"],
        Permission[given.get("permission_type") or "ANY"],
    )
