"""ApiVersions (KIP-35 as adopted, KIP-511): what is served, and by which software the client introduces itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from core.errors import ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from core.protocol.traits import api_versions_names_software

if TYPE_CHECKING:
    from core.listeners.kafka.door import KafkaSession

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


def _served() -> list[ApiVersion]:
    from core.listeners.kafka.dispatch import HANDLERS  # the table is complete once all files are loaded

    return [ApiVersion(key, *HANDLERS[key].versions) for key in sorted(HANDLERS)]


HANDLERS = table(Handler(18, api_versions))
