"""ApiVersions (key 18): which APIs and versions a broker serves.

Versions 0–4, flexible from 3.

The response header is always version 0, so that a client that guessed too high can read it. Version 3
names the client's software (KIP-511), and features (KIP-584).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Int64, Message


class ApiVersionsRequest(Message):
    """ApiVersions request."""

    client_software_name: Annotated[str, F("3+")] = ""
    client_software_version: Annotated[str, F("3+")] = ""


class ApiVersion(Message):
    """An entry of `ApiVersionsResponse.api_keys`."""

    api_key: Annotated[Int16, F("0+")] = 0
    min_version: Annotated[Int16, F("0+")] = 0
    max_version: Annotated[Int16, F("0+")] = 0


class SupportedFeatureKey(Message):
    """An entry of `ApiVersionsResponse.supported_features`."""

    name: Annotated[str, F("3+")] = ""
    min_version: Annotated[Int16, F("3+")] = 0
    max_version: Annotated[Int16, F("3+")] = 0


class FinalizedFeatureKey(Message):
    """An entry of `ApiVersionsResponse.finalized_features`."""

    name: Annotated[str, F("3+")] = ""
    max_version_level: Annotated[Int16, F("3+")] = 0
    min_version_level: Annotated[Int16, F("3+")] = 0


class ApiVersionsResponse(Message):
    """ApiVersions response."""

    error_code: Annotated[Int16, F("0+")] = 0
    api_keys: Annotated[list[ApiVersion], F("0+")] = []
    throttle_time_ms: Annotated[Int32, F("1+")] = 0
    supported_features: Annotated[list[SupportedFeatureKey], F("3+", tag=0)] = []
    # −1 where it is not known.
    finalized_features_epoch: Annotated[Int64, F("3+", tag=1)] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], F("3+", tag=2)] = []
    zk_migration_ready: Annotated[bool, F("3+", tag=3)] = False
