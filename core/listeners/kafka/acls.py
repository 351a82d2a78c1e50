"""DescribeAcls, CreateAcls, DeleteAcls: the access rules (KIP-140, KIP-290).

While no authorizer is on, each answer is SECURITY_DISABLED. A code that the protocol does not know closes the
connection, as in Kafka; one that is for filters alone is INVALID_REQUEST in a rule.
"""

from __future__ import annotations

from itertools import groupby
from typing import Protocol

from core.errors import BrokerError
from core.listeners.connection import RefusedError
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from core.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from core.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from core.security.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType


class _Filter(Protocol):
    """What DescribeAcls and DeleteAcls have in common."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def describe_acls(session: KafkaSession, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Return the rules that fit a filter, by resource."""
    wanted = _filter(request)
    try:
        found = session.broker.acls.describe(wanted)
    except BrokerError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    resources = [
        DescribeAclsResource(
            kind,
            name,
            pattern,
            [AclDescription(one.principal, one.host, one.operation, one.permission) for one in acls],
        )
        for (kind, name, pattern), acls in groupby(found, lambda one: one[:3])
    ]
    # Kafka 4.1 says "" and not null where there is no error.
    return DescribeAclsResponse(error_message="", resources=resources)


async def create_acls(session: KafkaSession, request: CreateAclsRequest) -> CreateAclsResponse:
    """Create rules, each with its own result. What exists is created again without an error."""
    acls = [_acl(one) for one in request.creations]
    try:
        results = await session.broker.acls.create(acls)
    except BrokerError as error:
        return CreateAclsResponse(results=[AclCreationResult(error.code, error.message) for _ in acls])
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_message="")
            if error is None
            else AclCreationResult(error.code, error.message)
            for error in results
        ]
    )


async def delete_acls(session: KafkaSession, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Delete the rules that fit any of the filters; return those of each filter."""
    filters = [_filter(one) for one in request.filters]
    try:
        deleted = await session.broker.acls.delete(filters)
    except BrokerError as error:
        refused = [DeleteAclsFilterResult(error.code, error.message) for _ in filters]
        return DeleteAclsResponse(filter_results=refused)
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(matching_acls=[DeleteAclsMatchingAcl(0, None, *one) for one in acls])
            for acls in deleted
        ]
    )


def _filter(asked: _Filter) -> AclFilter:
    try:
        return AclFilter(
            ResourceType(asked.resource_type_filter),
            asked.resource_name_filter,
            PatternType(asked.pattern_type_filter),
            asked.principal_filter,
            asked.host_filter,
            Operation(asked.operation),
            Permission(asked.permission_type),
        )
    except ValueError as error:
        raise RefusedError(f"a filter for access rules: {error}") from None


def _acl(asked: AclCreation) -> Acl:
    try:
        return Acl(
            ResourceType(asked.resource_type),
            asked.resource_name,
            PatternType(asked.resource_pattern_type),
            asked.principal,
            asked.host,
            Operation(asked.operation),
            Permission(asked.permission_type),
        )
    except ValueError as error:
        raise RefusedError(f"an access rule: {error}") from None


_DESCRIBE = ((Operation.DESCRIBE, ResourceType.CLUSTER),)
_ALTER = ((Operation.ALTER, ResourceType.CLUSTER),)

HANDLERS = table(
    Handler(29, describe_acls, needs=_DESCRIBE),
    Handler(30, create_acls, needs=_ALTER),
    Handler(31, delete_acls, needs=_ALTER),
)
