"""ACLs: answer SECURITY_DISABLED, as a Kafka broker without an authorizer does."""

from __future__ import annotations

from core.errors import ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from core.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from core.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

_NO_AUTHORIZER = "No authorizer is configured on this broker: it has no access rules."


def describe_acls(session: KafkaSession, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Answer SECURITY_DISABLED."""
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER)


def create_acls(session: KafkaSession, request: CreateAclsRequest) -> CreateAclsResponse:
    """Answer SECURITY_DISABLED for each rule."""
    refused = [AclCreationResult(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER) for _ in request.creations]
    return CreateAclsResponse(results=refused)


def delete_acls(session: KafkaSession, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Answer SECURITY_DISABLED for each filter."""
    refused = [DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER) for _ in request.filters]
    return DeleteAclsResponse(filter_results=refused)


HANDLERS = table(
    Handler(29, describe_acls),
    Handler(30, create_acls),
    Handler(31, delete_acls),
)
