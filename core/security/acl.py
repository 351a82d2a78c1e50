"""Describe access rules as Kafka's ACLs do: a principal may, or may not, do an operation on resources.

The numbers are those of the protocol (KIP-140, KIP-290). A pattern is a literal name, the beginning of names, or `*`,
a literal that matches all names.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import NamedTuple

from core.errors import BrokerError, ErrorCode

WILDCARD = "*"
ANY_USER = "User:*"
CLUSTER_NAME = "kafka-cluster"


class ResourceType(IntEnum):
    """The type of a resource. ANY is for filters alone."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The type of a pattern. ANY and MATCH (every pattern that covers a name) are for filters alone."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """An operation. ALL in a rule means every operation; ANY is for filters alone."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """What a rule says about its operation. ANY is for filters alone."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_IMPLYING = {
    Operation.DESCRIBE: frozenset(
        {
            Operation.DESCRIBE,
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.ALL,
        }
    ),
    Operation.DESCRIBE_CONFIGS: frozenset(
        {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}
    ),
}


def implying(operation: Operation) -> Collection[Operation]:
    """Return the operations that allow one, in a rule that allows: itself, ALL, and those that include it."""
    return _IMPLYING.get(operation, (operation, Operation.ALL))


class Acl(NamedTuple):
    """One access rule. `principal` is `User:name` or `User:*`; `host` is an IP address or `*`."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclFilter(NamedTuple):
    """A filter for rules. None, and the ANY of each enumeration, fit every value."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def fits(self, acl: Acl) -> bool:
        """Return whether a rule fits the filter."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self._fits_pattern(acl)
        )

    def _fits_pattern(self, acl: Acl) -> bool:
        if self.pattern_type is PatternType.MATCH:
            return self.resource_name is None or covers(acl, self.resource_name)
        if self.pattern_type not in (PatternType.ANY, acl.pattern_type):
            return False
        return self.resource_name in (None, acl.resource_name)


def covers(acl: Acl, name: str) -> bool:
    """Return whether the pattern of a rule covers a resource of that name."""
    if acl.pattern_type is PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, WILDCARD)


def check_acl(acl: Acl) -> None:
    """Raise INVALID_REQUEST for a rule that cannot be: one with values for filters, or names that Kafka refuses."""
    for word, value in (
        ("resource type", acl.resource_type),
        ("pattern type", acl.pattern_type),
        ("operation", acl.operation),
        ("permission type", acl.permission),
    ):
        if value.name in ("ANY", "MATCH"):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"The {word} {value.name} is for filters; a rule needs one that is definite.",
            )
    if not acl.resource_name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        )
    kind, colon, name = acl.principal.partition(":")
    if not colon:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type "
            "from the principal name)",
        )
    if not kind or not name:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"The principal {acl.principal!r} needs a type and a name, as User:alice.",
        )
