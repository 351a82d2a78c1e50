"""Kafka's property names to `ClientSettings`."""

from __future__ import annotations

from collections.abc import Mapping

from core.client.settings import ClientSettings


def client_settings(properties: Mapping[str, str]) -> ClientSettings:
    """Return the settings that a file of Kafka properties describes. Raises ValueError for what is wrong in it."""
    raise NotImplementedError
