"""Brokers among themselves: which of them a certificate is of, and how one connects to another over TLS.

A listener of the scheme `peer` is for the other brokers of the cluster alone. Its certificate, key and authorities
serve both directions: a broker shows the certificate to brokers that connect to it, and to those that it connects to.
Both sides must have one of a known authority, and its principal says which broker it belongs to.
"""

from __future__ import annotations

import asyncio
import ssl

from core.config import Config, TlsSettings
from core.security.certificates import CertificateError, facts_of
from core.security.mapping_rules import MappingRules
from core.security.principal import Principal
from core.security.tls import UnmappedPrincipalError

_ID = "{id}"


def peer_of(config: Config, principal: Principal) -> int:
    """Return the id of the peer that a principal is. Raises UnmappedPrincipalError."""
    for peer in config.peers:
        if str(principal) == _principal_of(config, peer.broker_id):
            return peer.broker_id
    raise UnmappedPrincipalError(f"{principal} is no other broker of this cluster")


def _principal_of(config: Config, broker_id: int) -> str:
    return config.peer_principal.replace(_ID, str(broker_id))


def settings_of(config: Config) -> TlsSettings | None:
    """Return the certificate between brokers; None if there is no listener of their own."""
    name = config.peer_listener.tls if config.peer_listener is not None else ""
    return next((one for one in config.tls if one.name == name), None)


def client_context(config: Config) -> ssl.SSLContext | None:
    """Return the context for a connection to another broker, None for one without TLS.

    The files are read again for each connection, so that new ones are used. Raises OSError.
    """
    settings = settings_of(config)
    if settings is None or settings.certificate is None:
        return None
    # The name of the host is checked, and authorities of the system do not count.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(settings.client_ca)
    context.load_cert_chain(settings.certificate, settings.key)
    return context


def check_server(config: Config, broker_id: int, transport: asyncio.BaseTransport) -> None:
    """Check that the broker at the other end is the one that is meant. Raises ConnectionError."""
    settings, found = settings_of(config), transport.get_extra_info("ssl_object")
    assert settings is not None
    der = found.getpeercert(binary_form=True) if found is not None else None
    try:
        subject = facts_of(der or b"").subject
    except CertificateError:
        subject = ""
    principal = MappingRules(settings.principal_mapping_rules).principal(subject) if subject else None
    if str(principal) != _principal_of(config, broker_id):
        raise ConnectionError(f"its certificate is that of {principal or 'no principal'}")
