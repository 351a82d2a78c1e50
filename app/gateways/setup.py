"""Make the forwarding of one configuration: the levels, and the way to each other gateway."""

from __future__ import annotations

import ssl
from pathlib import Path

from app.gateway_settings import read_secret
from app.gateways.forwarding import Forwarding, Level
from app.gateways.links import Links, Target
from app.gateways.ownership import hashed
from core.clock import Clock
from core.config import Config, Gateway
from core.errors import StartupError

GATEWAY_LEVEL = "gateway"
# Beyond the longest poll: a slow disk, a change of the leader, a slow body.
MARGIN_SECONDS = 30.0


def forwarding_of(config: Config, clock: Clock) -> Forwarding | None:
    """Return the forwarding to the gateways of the settings; None for one gateway. Raises StartupError."""
    level = gateway_level(config, clock)
    return None if level is None else Forwarding([level], clock)


def gateway_level(config: Config, clock: Clock) -> Level | None:
    """Return the level of the gateways of the settings; None for one gateway. Raises StartupError."""
    if len(config.gateways) < 2 or config.gateway_secret_file is None:
        return None
    tls = _tls(config) if any(one.scheme == "https" for one in config.gateways) else None
    links = {
        one.name: Links(
            _target(one, tls),
            clock,
            connect_timeout_ms=config.gateway_connect_timeout_ms,
            most=config.gateway_max_requests,
            answer_seconds=config.max_wait_ms / 1_000 + MARGIN_SECONDS,
        )
        for one in config.gateways
        if one.name != config.gateway_name
    }
    owner = hashed([one.name for one in config.gateways])
    return Level(GATEWAY_LEVEL, config.gateway_name, read_secret(config.gateway_secret_file), owner, links)


def _target(gateway: Gateway, tls: ssl.SSLContext | None) -> Target:
    return Target(gateway.host, gateway.port, tls if gateway.scheme == "https" else None)


def _tls(config: Config) -> ssl.SSLContext:
    file: Path | None = config.gateway_ca
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise StartupError(
            f"Cannot read the certificates of SLUICE_GATEWAY_CA, {file}: {error.strerror or error}."
        ) from None
