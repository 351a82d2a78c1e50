"""UpdateFeatures (key 57): feature levels of the cluster to raise or lower (KIP-584).

Versions 0–2, flexible from 0.

Version 1 can try without doing (KIP-778), version 2 has one error for all features (KIP-1022).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int8, Int16, Int32, Message


class FeatureUpdateKey(Message):
    """An entry of `UpdateFeaturesRequest.feature_updates`."""

    feature: Annotated[str, F("0+")] = ""
    max_version_level: Annotated[Int16, F("0+")] = 0
    allow_downgrade: Annotated[bool, F("0")] = False
    # 1 up, 2 down where nothing is lost, 3 down regardless.
    upgrade_type: Annotated[Int8, F("1+")] = 1


class UpdateFeaturesRequest(Message):
    """UpdateFeatures request."""

    timeout_ms: Annotated[Int32, F("0+")] = 60000
    feature_updates: Annotated[list[FeatureUpdateKey], F("0+")] = []
    validate_only: Annotated[bool, F("1+")] = False


class UpdatableFeatureResult(Message):
    """An entry of `UpdateFeaturesResponse.results`."""

    feature: Annotated[str, F("0-1")] = ""
    error_code: Annotated[Int16, F("0-1")] = 0
    error_message: Annotated[str | None, F("0-1", nullable="0-1")] = None


class UpdateFeaturesResponse(Message):
    """UpdateFeatures response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    results: Annotated[list[UpdatableFeatureResult], F("0-1")] = []
