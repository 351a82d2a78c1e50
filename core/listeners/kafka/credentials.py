"""DescribeUserScramCredentials and AlterUserScramCredentials: the users of the broker, as Kafka's tools see them.

Refusals have Kafka's codes and words (KIP-554). A salted password is worth a password, so that it is taken only over
TLS or from this machine.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence

from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from core.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from core.security.acl import Operation, ResourceType
from core.vocabulary.users import CredentialChange


def describe_user_scram_credentials(
    session: KafkaSession, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Return the mechanisms and iterations of users.

    RESOURCE_NOT_FOUND for a user without credentials, DUPLICATE_RESOURCE for one that is named more than once. Null
    or no names ask for all users.
    """
    if (denied := session.rights.denial(Operation.DESCRIBE, ResourceType.CLUSTER)) is not None:
        return DescribeUserScramCredentialsResponse(error_code=denied.code, error_message=denied.message)
    known = {user.name: user.credentials for user in session.listener.broker.users.all() if user.credentials}
    results = []
    for name, count in Counter(user.name for user in request.users or ()).items():
        one = DescribeUserScramCredentialsResult(name, ErrorCode.NONE, None)
        if count > 1:
            one.error_code = ErrorCode.DUPLICATE_RESOURCE
            one.error_message = (
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            )
        elif name not in known:
            one.error_code = ErrorCode.RESOURCE_NOT_FOUND
            one.error_message = f"Attempt to describe a user credential that does not exist: {name}"
        results.append(one)
    if not request.users:
        results = [DescribeUserScramCredentialsResult(name, ErrorCode.NONE, None) for name in known]
    for one in results:
        if not one.error_code:
            one.credential_infos = [CredentialInfo(*info) for info in known[one.user]]
    # Kafka 4.1 says "" and not null where there is no error.
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


async def alter_user_scram_credentials(
    session: KafkaSession, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Set and remove credentials, user by user; one answer for each user, also if it is named more than once.

    SECURITY_DISABLED over a connection that others can read, UNACCEPTABLE_CREDENTIAL for bad iterations, an empty
    name, salt or password, UNSUPPORTED_SASL_MECHANISM, RESOURCE_NOT_FOUND for what is not there,
    DUPLICATE_RESOURCE for a user that is changed more than once, NOT_CONTROLLER.
    """
    changes = [CredentialChange(one.name, one.mechanism) for one in request.deletions]
    changes += [
        CredentialChange(one.name, one.mechanism, one.iterations, bytes(one.salt), bytes(one.salted_password))
        for one in request.upsertions
    ]
    by_name: dict[str, list[CredentialChange]] = {}
    for change in changes:
        by_name.setdefault(change.name, []).append(change)
    results = []
    for name, of_user in by_name.items():
        try:
            session.rights.require(Operation.ALTER, ResourceType.CLUSTER)
            _check(session, of_user)
            await session.broker.users.alter_credentials(of_user)
            results.append(AlterUserScramCredentialsResult(name))
        except BrokerError as error:
            results.append(AlterUserScramCredentialsResult(name, error.code, error.message))
    return AlterUserScramCredentialsResponse(results=results)


def _check(session: KafkaSession, changes: Sequence[CredentialChange]) -> None:
    if len(changes) > 1:
        raise BrokerError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )
    if changes[0].salted_password is not None and not _is_private(session):
        raise BrokerError(
            ErrorCode.SECURITY_DISABLED,
            "A credential is as good as a password, and others can read this connection: set it over TLS, or on the "
            "machine of the broker.",
        )


def _is_private(session: KafkaSession) -> bool:
    if dict(session.listener.endpoint.options).get("tls"):
        return True
    try:
        return ipaddress.ip_address(session.peer_host.partition("%")[0]).is_loopback
    except ValueError:
        return False


HANDLERS = table(
    Handler(50, describe_user_scram_credentials, needs=((Operation.DESCRIBE, ResourceType.CLUSTER),)),
    Handler(51, alter_user_scram_credentials, needs=((Operation.ALTER, ResourceType.CLUSTER),)),
)
