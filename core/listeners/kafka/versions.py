"""ApiVersions (KIP-35 as adopted, KIP-511) and UpdateFeatures (KIP-584).

In ApiVersions the client also names its software. This broker has no features, so each update is refused.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine
from typing import Any

from core.errors import ErrorCode
from core.listeners.kafka.handler import Handler, served_versions, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from core.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from core.protocol.traits import api_versions_names_software
from core.security.acl import Operation, ResourceType

# KIP-511: the characters allowed in the name and version of a client's software, because both are logged.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_MAX_SOFTWARE = 256


def api_versions(
    session: KafkaSession, request: ApiVersionsRequest | None
) -> ApiVersionsResponse | Coroutine[Any, Any, ApiVersionsResponse]:
    """The table of APIs. `request` None means a version that is not served: error 35, with the table.

    ILLEGAL_SASL_STATE, and the end of the connection, in the midst of a SASL exchange.
    """
    error = ErrorCode.NONE
    if request is None:
        error = ErrorCode.UNSUPPORTED_VERSION
    elif api_versions_names_software(session.version):
        name, version = request.client_software_name, request.client_software_version
        if not all(len(part) <= _MAX_SOFTWARE and _SOFTWARE.fullmatch(part) for part in (name, version)):
            error = ErrorCode.INVALID_REQUEST
        else:
            session.client_software = f"{name}/{version}"
    if not session.authentication.versions_answered(good=error is ErrorCode.NONE):
        return session.authentication.fail(ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
    if error is ErrorCode.INVALID_REQUEST:
        return ApiVersionsResponse(error_code=error)
    return ApiVersionsResponse(error_code=error, api_keys=_served(session))


def update_features(session: KafkaSession, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Refuse any feature with INVALID_UPDATE_VERSION: ApiVersions names none that has levels."""
    if (denied := session.rights.denial(Operation.ALTER, ResourceType.CLUSTER)) is not None:
        return UpdateFeaturesResponse(error_code=denied.code, error_message=denied.message)
    if not request.feature_updates:
        return UpdateFeaturesResponse()
    first = request.feature_updates[0]
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message=f"No feature was updated: invalid version {first.max_version_level} for feature "
        f"{first.feature!r}. This broker has no features with levels.",
    )


def _served(session: KafkaSession) -> list[ApiVersion]:
    return [ApiVersion(*one) for one in served_versions(session.listener.handlers)]


HANDLERS = table(
    Handler(18, api_versions, needs=()),
    Handler(57, update_features, needs=((Operation.ALTER, ResourceType.CLUSTER),)),
)
