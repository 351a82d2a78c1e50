"""DescribeUserScramCredentials (key 50): SCRAM mechanisms and iterations of users (KIP-554).

Version 0, flexible from 0.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int8, Int16, Int32, Message


class UserName(Message):
    """An entry of `DescribeUserScramCredentialsRequest.users`."""

    name: Annotated[str, F("0+")] = ""


class DescribeUserScramCredentialsRequest(Message):
    """DescribeUserScramCredentials request."""

    users: Annotated[list[UserName] | None, F("0+", nullable="0+")] = []


class CredentialInfo(Message):
    """An entry of `DescribeUserScramCredentialsResult.credential_infos`."""

    mechanism: Annotated[Int8, F("0+")] = 0
    iterations: Annotated[Int32, F("0+")] = 0


class DescribeUserScramCredentialsResult(Message):
    """An entry of `DescribeUserScramCredentialsResponse.results`."""

    user: Annotated[str, F("0+")] = ""
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    credential_infos: Annotated[list[CredentialInfo], F("0+")] = []


class DescribeUserScramCredentialsResponse(Message):
    """DescribeUserScramCredentials response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    results: Annotated[list[DescribeUserScramCredentialsResult], F("0+")] = []
