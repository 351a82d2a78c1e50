"""AlterUserScramCredentials (key 51): SCRAM credentials to set or drop (KIP-554).

Version 0, flexible from 0.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int8, Int16, Int32, Message


class ScramCredentialDeletion(Message):
    """An entry of `AlterUserScramCredentialsRequest.deletions`."""

    name: Annotated[str, F("0+")] = ""
    mechanism: Annotated[Int8, F("0+")] = 0


class ScramCredentialUpsertion(Message):
    """An entry of `AlterUserScramCredentialsRequest.upsertions`."""

    name: Annotated[str, F("0+")] = ""
    # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
    mechanism: Annotated[Int8, F("0+")] = 0
    iterations: Annotated[Int32, F("0+")] = 0
    salt: Annotated[bytes, F("0+")] = b""
    salted_password: Annotated[bytes, F("0+")] = b""


class AlterUserScramCredentialsRequest(Message):
    """AlterUserScramCredentials request."""

    deletions: Annotated[list[ScramCredentialDeletion], F("0+")] = []
    upsertions: Annotated[list[ScramCredentialUpsertion], F("0+")] = []


class AlterUserScramCredentialsResult(Message):
    """An entry of `AlterUserScramCredentialsResponse.results`."""

    user: Annotated[str, F("0+")] = ""
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None


class AlterUserScramCredentialsResponse(Message):
    """AlterUserScramCredentials response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    results: Annotated[list[AlterUserScramCredentialsResult], F("0+")] = []
