"""ACLs and SCRAM credentials: answer as a Kafka broker without an authorizer and without users does.

Every rule is SECURITY_DISABLED, and every user is unknown. A credential is refused, because it would protect nothing.
"""

from __future__ import annotations

from collections import Counter

from core.errors import ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from core.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from core.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from core.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from core.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

_NO_AUTHORIZER = "No authorizer is configured on this broker: it has no access rules."
_NO_USERS = "This broker authenticates no users and keeps no SCRAM credentials."


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


def describe_user_scram_credentials(
    session: KafkaSession, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Answer RESOURCE_NOT_FOUND for each user, DUPLICATE_RESOURCE for one that is named more than once.

    Null or no names ask for all users: there are none.
    """
    results = []
    for name, count in Counter(user.name for user in request.users or ()).items():
        code, message = (
            ErrorCode.RESOURCE_NOT_FOUND,
            f"There are no credentials of user {name!r}. {_NO_USERS}",
        )
        if count > 1:
            code, message = ErrorCode.DUPLICATE_RESOURCE, f"User {name!r} is named more than once."
        results.append(DescribeUserScramCredentialsResult(name, code, message))
    # Kafka 4.1 says "" and not null where there is no error.
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


def alter_user_scram_credentials(
    session: KafkaSession, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Answer RESOURCE_NOT_FOUND for users to be deleted, SECURITY_DISABLED for those to be set.

    One answer for each user, also if it is named more than once.
    """
    results = {
        one.name: AlterUserScramCredentialsResult(
            one.name,
            ErrorCode.RESOURCE_NOT_FOUND,
            f"There are no credentials of user {one.name!r}. {_NO_USERS}",
        )
        for one in request.deletions
    }
    for upsertion in request.upsertions:
        results[upsertion.name] = AlterUserScramCredentialsResult(
            upsertion.name, ErrorCode.SECURITY_DISABLED, _NO_USERS
        )
    return AlterUserScramCredentialsResponse(results=list(results.values()))


HANDLERS = table(
    Handler(29, describe_acls),
    Handler(30, create_acls),
    Handler(31, delete_acls),
    Handler(50, describe_user_scram_credentials),
    Handler(51, alter_user_scram_credentials),
)
