"""What is served: ApiVersions (KIP-35 as adopted, KIP-511), where the client's software introduces itself too, the
ProtocolVersionRequest of KIP-35's draft, on a key that a setting names, and UpdateFeatures (KIP-584), of which there
are none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from core.errors import ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from core.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from core.protocol.protocol_versions import own_support, support
from core.protocol.traits import api_versions_names_software
from core.types import ApiSupport

if TYPE_CHECKING:
    from core.listeners.kafka.listener import KafkaSession

# KIP-511: what may stand in the name and version of a client's software, before it reaches a log.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_MAX_SOFTWARE = 256


def api_versions(session: KafkaSession, request: ApiVersionsRequest | None) -> ApiVersionsResponse:
    """The table of APIs. `request` None stands for a version that is not served: error 35, with the table."""
    error = ErrorCode.NONE
    if request is None:
        error = ErrorCode.UNSUPPORTED_VERSION
    elif api_versions_names_software(session.version):
        name, version = request.client_software_name, request.client_software_version
        if not all(len(part) <= _MAX_SOFTWARE and _SOFTWARE.fullmatch(part) for part in (name, version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        session.client_software = f"{name}/{version}"
    return ApiVersionsResponse(error_code=error, api_keys=_served())


def update_features(session: KafkaSession, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Refuse any feature with INVALID_UPDATE_VERSION: ApiVersions names none that has levels."""
    if not request.feature_updates:
        return UpdateFeaturesResponse()
    first = request.feature_updates[0]
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message=f"No feature was updated: invalid version {first.max_version_level} for feature "
        f"{first.feature!r}. This broker has no features with levels.",
    )


def protocol_versions(own_key: int) -> list[ApiSupport]:
    """Every API that is served, by key; the draft's own under `own_key`, unless that is 0."""
    apis = [support(key, first, last) for key, first, last in _ranges()]
    return apis if not own_key else [*apis, own_support(own_key)]


def _served() -> list[ApiVersion]:
    return [ApiVersion(*one) for one in _ranges()]


def _ranges() -> list[tuple[int, int, int]]:
    from core.listeners.kafka.dispatch import HANDLERS  # the table is complete once all files are loaded

    return [(key, *HANDLERS[key].versions) for key in sorted(HANDLERS)]


HANDLERS = table(Handler(18, api_versions), Handler(57, update_features))
