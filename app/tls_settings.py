"""The setting `tls`: one certificate in a flag, or several with their names in `sluice.toml`.

auto                        the broker makes a self-signed pair itself
CERTIFICATE.pem,KEY.pem     a pair in two files; one file may hold both
{"NAME": {"certificate": …}, …}   the tables [tls.NAME] of the configuration file, as JSON
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.setting_tables import named_tables, refuse_unknown, text_member
from core.config import CLIENT_AUTH, DEFAULT_CERTIFICATE, TLS, Config, Endpoint, TlsSettings
from core.errors import StartupError

AUTO = "auto"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,60}")
_MEMBERS = ("certificate", "key", "client_ca", "client_auth", "principal_mapping_rules")
_LIKE = "auto, or CERTIFICATE.pem,KEY.pem, or tables [tls.NAME] in the configuration file"


def parse_tls(text: str) -> tuple[TlsSettings, ...]:
    """Return the certificates of the setting, none if it is empty. Raises StartupError."""
    text = text.strip()
    if not text:
        return ()
    if text.startswith("{"):
        tables = named_tables("SLUICE_TLS", text, DEFAULT_CERTIFICATE)
        return tuple(_of_table(name, table) for name, table in tables.items())
    files = [part.strip() for part in text.split(",")]
    if not all(files) or len(files) > 2:
        raise StartupError(f"SLUICE_TLS must be {_LIKE}, not {text!r}.")
    if files == [AUTO]:
        return (TlsSettings(DEFAULT_CERTIFICATE),)
    return (TlsSettings(DEFAULT_CERTIFICATE, _path(files[0]), _path(files[-1])),)


def _of_table(name: str, table: Any) -> TlsSettings:
    where = f"SLUICE_TLS: the certificate {name!r}"
    if _NAME.fullmatch(name) is None or not isinstance(table, dict):
        raise StartupError(
            f"{where} must be a table [tls.NAME]; a name has letters, digits, '.', '_' and '-'."
        )
    refuse_unknown(where, table, _MEMBERS)
    texts = {member: _text(where, member, value) for member, value in table.items()}
    certificate, key, client_ca = (texts.get(member, "") for member in _MEMBERS[:3])
    client_auth = texts.get("client_auth", "required" if client_ca else "none").lower()
    if not certificate or (certificate == AUTO and key):
        raise StartupError(
            f"{where} needs certificate = a file, and its key; or certificate = {AUTO!r} alone."
        )
    if client_auth not in CLIENT_AUTH:
        raise StartupError(f"{where}: client_auth must be {', '.join(CLIENT_AUTH)}, not {client_auth!r}.")
    if client_auth != "none" and not client_ca:
        raise StartupError(
            f"{where}: client_auth = {client_auth!r} needs client_ca, the authorities of clients."
        )
    return TlsSettings(
        name,
        None if certificate == AUTO else _path(certificate),
        None if certificate == AUTO else _path(key or certificate),
        _path(client_ca) if client_ca else None,
        client_auth,
        texts.get("principal_mapping_rules", "DEFAULT"),
    )


def _text(where: str, member: str, value: Any) -> str:
    if member == "principal_mapping_rules" and isinstance(value, list):
        value = ",".join(map(str, value))
    return text_member(where, member, value)


def _path(text: str) -> Path:
    return Path(text).expanduser()


def listeners_with_tls(given: tuple[Endpoint, ...], tls: tuple[TlsSettings, ...]) -> tuple[Endpoint, ...]:
    """Return the listeners, the default ones with TLS if there is a certificate. Raises StartupError.

    Listeners that are given say for themselves whether they have TLS. Every name must be that of a certificate.
    """
    if not given:
        listeners = Config().listeners
        return tuple(replace(e, options=((TLS, tls[0].name),)) for e in listeners) if tls else listeners
    names = {one.name for one in tls}
    for endpoint in given:
        if endpoint.tls and endpoint.tls not in names:
            raise StartupError(
                f"The listener {endpoint} needs the certificate {endpoint.tls!r}, which is not set: "
                "add --tls auto, or --tls CERTIFICATE.pem,KEY.pem."
            )
    if tls and not any(endpoint.tls for endpoint in given):
        raise StartupError(
            "There is a certificate, and no listener has TLS: write --listener https://HOST:PORT, or "
            "kafka://HOST:PORT?tls."
        )
    return given


def authenticates(endpoint: Endpoint, tls: tuple[TlsSettings, ...]) -> bool:
    """Return whether a listener takes clients with a certificate of a known authority alone."""
    settings: Mapping[str, TlsSettings] = {one.name: one for one in tls}
    return bool(endpoint.tls) and settings[endpoint.tls].client_auth == "required"
