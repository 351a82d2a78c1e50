"""ApiVersions (KIP-35 as adopted, KIP-511) and UpdateFeatures (KIP-584).

In ApiVersions the client also names its software. The one feature is `transaction.version`; its level is fixed, so
each update is refused.
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
# Clients begin transactions by a first Produce if this level is 2, and by AddPartitionsToTxn if not (KIP-890). They
# also look whether Produce 12, TxnOffsetCommit 5 and EndTxn 5 are served.
_TRANSACTIONS = "transaction.version"
_TRANSACTION_LEVEL = 2


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
    answer.supported_features = [SupportedFeatureKey(_TRANSACTIONS, 0, _TRANSACTION_LEVEL)]
    answer.finalized_features = [FinalizedFeatureKey(_TRANSACTIONS, _TRANSACTION_LEVEL, _TRANSACTION_LEVEL)]
    # Java ignores features of an unknown epoch.
    answer.finalized_features_epoch = 0
    return answer


def update_features(session: KafkaSession, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Refuse any feature with INVALID_UPDATE_VERSION: this broker has one level of each."""
    if (denied := session.rights.denial(Operation.ALTER, ResourceType.CLUSTER)) is not None:
        return UpdateFeaturesResponse(error_code=denied.code, error_message=denied.message)
    if not request.feature_updates:
        return UpdateFeaturesResponse()
    first = request.feature_updates[0]
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message=f"No feature was updated: invalid version {first.max_version_level} for feature "
        f"{first.feature!r}. The levels of this broker are fixed.",
    )


def _served(session: KafkaSession) -> list[ApiVersion]:
    return [ApiVersion(*one) for one in served_versions(session.listener.handlers)]


HANDLERS = table(
    Handler(18, api_versions, needs=()),
    Handler(57, update_features, needs=((Operation.ALTER, ResourceType.CLUSTER),)),
)
