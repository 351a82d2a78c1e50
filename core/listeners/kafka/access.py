"""SCRAM credentials: answer as a Kafka broker without users does.

Every user is unknown. A credential is refused, because it would protect nothing.
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
from core.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from core.security.acl import Operation, ResourceType

_NO_USERS = "This broker authenticates no users and keeps no SCRAM credentials."


def describe_user_scram_credentials(
    session: KafkaSession, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Answer RESOURCE_NOT_FOUND for each user, DUPLICATE_RESOURCE for one that is named more than once.

    Null or no names ask for all users: there are none.
    """
    if (denied := session.rights.denial(Operation.DESCRIBE, ResourceType.CLUSTER)) is not None:
        return DescribeUserScramCredentialsResponse(error_code=denied.code, error_message=denied.message)
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
    if (denied := session.rights.denial(Operation.ALTER, ResourceType.CLUSTER)) is not None:
        names = dict.fromkeys(
            [*(one.name for one in request.deletions), *(o.name for o in request.upsertions)]
        )
        refused = [AlterUserScramCredentialsResult(name, denied.code, denied.message) for name in names]
        return AlterUserScramCredentialsResponse(results=refused)
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
    Handler(50, describe_user_scram_credentials, needs=((Operation.DESCRIBE, ResourceType.CLUSTER),)),
    Handler(51, alter_user_scram_credentials, needs=((Operation.ALTER, ResourceType.CLUSTER),)),
)
