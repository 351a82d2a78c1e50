"""The settings of brokers among themselves: the listener of the scheme `peer` and its certificate."""

from __future__ import annotations

from core.config import PEER, Config
from core.errors import StartupError

_EXAMPLE = "--listener peer://HOST:9094?tls=peers"
_WILDCARDS = ("0.0.0.0", "::")


def check_peers(config: Config) -> None:
    """Raise StartupError for a listener of the brokers without proof, and for users that would be copied openly."""
    _refuse_open_copies(config)
    listener = config.peer_listener
    if listener is None:
        return
    if sum(one.scheme == PEER for one in config.listeners) > 1:
        raise StartupError("A broker has one listener of the scheme peer at most.")
    if not config.peers:
        raise StartupError(
            f"The listener {listener} is for the other brokers of a cluster: name them by --peer."
        )
    if "{id}" not in config.peer_principal or ":" not in config.peer_principal:
        raise StartupError(
            "SLUICE_PEER_PRINCIPAL must be a principal with {id} in it, like User:CN=broker-{id}, not "
            f"{config.peer_principal!r}."
        )
    settings = next((one for one in config.tls if one.name == listener.tls), None)
    if settings is None or settings.client_auth != "required" or settings.certificate is None:
        raise StartupError(
            f"The listener {listener} needs a certificate that the other brokers know, and has to ask for theirs: "
            f"write {_EXAMPLE}, and in the configuration file a table [tls.peers] with certificate, key, client_ca."
        )
    kafka = next((one for one in config.listeners if one.scheme == "kafka"), None)
    if kafka is not None and kafka.host in _WILDCARDS and not (config.advertised or kafka.advertised):
        raise StartupError(
            f"The other brokers cannot know where clients reach the listener {kafka}: add --advertised "
            "kafka://HOST:PORT."
        )


def _refuse_open_copies(config: Config) -> None:
    with_login = [endpoint for endpoint in config.listeners if endpoint.authentication]
    if config.peers and with_login and config.peer_listener is None:
        raise StartupError(
            f"The listener {with_login[0]} asks clients to log in, and users would be copied over open connections. "
            f"Give the brokers a listener of their own, {_EXAMPLE}; or leave --peer or the option auth out."
        )
