"""Scopes of tokens: what a token may be used for, of the rights that its owner has.

A scope is a list of rules like those that allow, without principal and host. A request with the token needs both: a
right of the owner, and a rule of the scope. As with access rules, READ, WRITE, DELETE and ALTER include DESCRIBE, and
ALTER_CONFIGS includes DESCRIBE_CONFIGS. A token without a scope has all rights of its owner.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from core.errors import BrokerError, ErrorCode
from core.security.acl import (
    ANY_USER,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_acl,
    covers,
    implying,
)
from core.vocabulary.users import ScopeRule, ScopeRules

MAX_RULES = 100
# Longer names than any resource has.
_MAX_NAME = 1_000


class Scope:
    """The scope of one token. Two of the same rules are equal."""

    __slots__ = ("_acls", "rules")

    def __init__(self, rules: ScopeRules) -> None:
        self.rules = rules
        self._acls = [_acl(rule) for rule in rules]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scope) and self.rules == other.rules

    def __hash__(self) -> int:
        return hash(self.rules)

    def permits(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Return whether the token may be used for an operation on a resource."""
        wanted = implying(operation)
        return any(
            acl.resource_type is kind and acl.operation in wanted and covers(acl, name) for acl in self._acls
        )

    def permits_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Return whether the token may be used for an operation on some resource of a type."""
        wanted = implying(operation)
        return any(acl.resource_type is kind and acl.operation in wanted for acl in self._acls)


@lru_cache(maxsize=1_000)
def scope_of(rules: ScopeRules) -> Scope | None:
    """Return the scope of a token with these rules, None if there are none. Kept, because each request asks."""
    return Scope(rules) if rules else None


def check_scope(rules: ScopeRules) -> None:
    """Raise INVALID_REQUEST for rules that cannot be."""
    if len(rules) > MAX_RULES:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"A scope has at most {MAX_RULES} rules.")
    for rule in rules:
        if len(rule.name) > _MAX_NAME:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"A name in a scope has at most {_MAX_NAME} characters."
            )
        check_acl(_acl(rule))


def encode(rules: ScopeRules) -> str:
    """Return rules as the store has them; an empty text for none."""
    return msgspec.json.encode([list(rule) for rule in rules]).decode() if rules else ""


def decode(text: str) -> ScopeRules:
    """Return the rules of a text of `encode`."""
    return tuple(ScopeRule(*rule) for rule in msgspec.json.decode(text)) if text else ()


def _acl(rule: ScopeRule) -> Acl:
    return Acl(
        ResourceType(rule.resource_type), rule.name, PatternType(rule.pattern_type), ANY_USER, WILDCARD,
        Operation(rule.operation), Permission.ALLOW,
    )  # fmt: skip
