"""ApiVersions (KIP-35 as adopted, KIP-511) and UpdateFeatures (KIP-584).

In ApiVersions the client also names its software. The levels of the features are fixed: a release has what it has. So
an update is refused, unless it asks for the level that there is.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine
from typing import Any

from core.errors import ErrorCode
from core.listeners.kafka.handler import Handler, served_versions, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from core.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from core.protocol.traits import api_versions_names_software
from core.security.acl import Operation, ResourceType

# KIP-511: the characters allowed in the name and version of a client's software, because both are logged.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_MAX_SOFTWARE = 256
# Each feature with its level, and an API without which there is no such feature here. Clients begin transactions by a
# first Produce if transaction.version is 2, and by AddPartitionsToTxn if not (KIP-890); they also look whether
# Produce 12, TxnOffsetCommit 5 and EndTxn 5 are served. group.version is that of KIP-848, share.version of KIP-932:
# admin tools read them, while consumers look for the APIs.
_FEATURES = (("group.version", 1, 68), ("share.version", 1, 76), ("transaction.version", 2, 26))


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
    answer = ApiVersionsResponse(error_code=error, api_keys=_served(session))
    features = _features(session)
    answer.supported_features = [SupportedFeatureKey(name, 0, level) for name, level in features.items()]
    answer.finalized_features = [FinalizedFeatureKey(name, level, level) for name, level in features.items()]
    # Java ignores features of an unknown epoch.
    answer.finalized_features_epoch = 0
    return answer


def update_features(session: KafkaSession, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Refuse to change a level with INVALID_UPDATE_VERSION; nothing is to do for the level that there is.

    A request is refused as a whole, and its first feature with another level is named, as in Kafka.
    """
    if (denied := session.rights.denial(Operation.ALTER, ResourceType.CLUSTER)) is not None:
        return UpdateFeaturesResponse(error_code=denied.code, error_message=denied.message)
    features = _features(session)
    for update in request.feature_updates:
        name, wanted = update.feature, update.max_version_level
        if features.get(name) == wanted:
            continue
        level = features.get(name)
        why = (
            "This broker does not have this feature."
            if level is None
            else f"Its level is {level}, and the levels of this broker are fixed."
        )
        return UpdateFeaturesResponse(
            error_code=ErrorCode.INVALID_UPDATE_VERSION,
            error_message=f"Invalid update version {wanted} for feature {name[:249]!r}. {why}",
        )
    return UpdateFeaturesResponse()


def _features(session: KafkaSession) -> dict[str, int]:
    """Return the features of this listener, with the level of each."""
    return {name: level for name, level, key in _FEATURES if key in session.listener.handlers}


def _served(session: KafkaSession) -> list[ApiVersion]:
    return [ApiVersion(*one) for one in served_versions(session.listener.handlers)]


HANDLERS = table(
    Handler(18, api_versions, needs=()),
    Handler(57, update_features, needs=((Operation.ALTER, ResourceType.CLUSTER),)),
)
