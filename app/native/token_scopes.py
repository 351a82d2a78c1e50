"""Scopes of tokens in JSON: rules with the members of access rules, without principal, host and permission."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, StrictStr

from app.native.schemas import Shape
from core.security.acl import CLUSTER_NAME, Operation, PatternType, ResourceType
from core.vocabulary.users import ScopeRule


class TokenScopeRule(Shape):
    """One thing that a token may be used for, if its owner has the right."""

    resource_type: Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"] = (
        "TOPIC"
    )
    resource_name: StrictStr | None = Field(
        None,
        description="The name or the beginning of names; `*` for all. Not needed for CLUSTER.",
        examples=["orders"],
    )
    pattern_type: Literal["LITERAL", "PREFIXED"] = Field(
        "LITERAL", description="PREFIXED: the name is the beginning of names."
    )
    operation: Literal[
        "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
    ]  # fmt: skip


def to_rule(one: TokenScopeRule) -> ScopeRule:
    """Return a rule as the broker has it."""
    name = one.resource_name
    if name is None:
        name = CLUSTER_NAME if one.resource_type == "CLUSTER" else ""
    return ScopeRule(
        Operation[one.operation], ResourceType[one.resource_type], PatternType[one.pattern_type], name
    )


def to_json(rule: ScopeRule) -> dict[str, str]:
    """Return a rule as the API shows it."""
    return {
        "resource_type": ResourceType(rule.resource_type).name,
        "resource_name": rule.name,
        "pattern_type": PatternType(rule.pattern_type).name,
        "operation": Operation(rule.operation).name,
    }
