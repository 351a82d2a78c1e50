"""The setting `console_oidc`: the login of the console at an OpenID provider.

issuer=https://…; client_id=sluice; redirect_uri=https://sluice.example.org/console/session/callback
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from urllib.parse import urlsplit

from app.setting_tables import refuse_unknown, table_of_pairs
from core.config import MAX_OIDC_SESSION_MINUTES, OIDC_SESSION_MINUTES, JwtIssuer, OidcClient
from core.errors import StartupError
from core.security.jwks import url_problem

CALLBACK = "/console/session/callback"
_EXAMPLE = "issuer=https://…; client_id=sluice; redirect_uri=https://…"
_NEEDED = ("issuer", "client_id", "redirect_uri")
_MEMBERS = (*_NEEDED, "client_secret_file", "scope", "token_endpoint", "session_minutes")


def parse_oidc(text: str, issuers: Collection[JwtIssuer]) -> OidcClient | None:
    """Return the client of the setting, None if it is empty. Raises StartupError."""
    table = table_of_pairs("SLUICE_CONSOLE_OIDC", text, _EXAMPLE)
    refuse_unknown("SLUICE_CONSOLE_OIDC", table, _MEMBERS)
    if not table:
        return None
    for name in _NEEDED:
        if not table.get(name):
            raise StartupError(f"SLUICE_CONSOLE_OIDC needs {name}.")
    for name in ("redirect_uri", "token_endpoint"):
        if table.get(name) and (problem := url_problem(table[name])):
            raise StartupError(f"SLUICE_CONSOLE_OIDC: {name} {table[name]!r} {problem}.")
    parts = urlsplit(table["redirect_uri"])
    if parts.path != CALLBACK or parts.query:
        raise StartupError(f"SLUICE_CONSOLE_OIDC: redirect_uri must end with {CALLBACK}.")
    if table["issuer"] not in {one.issuer for one in issuers}:
        raise StartupError(
            f"SLUICE_CONSOLE_OIDC: the issuer {table['issuer']!r} is not one of SLUICE_OAUTH, which says how its "
            "tokens are checked and how its users are named."
        )
    scope = table.get("scope", "openid")
    if "openid" not in scope.split():
        raise StartupError("SLUICE_CONSOLE_OIDC: scope must have openid.")
    file = Path(table["client_secret_file"]).expanduser() if table.get("client_secret_file") else None
    if file is not None:
        # Imported here: settings are read by commands that need no server.
        from app.first_user import read_password_file

        read_password_file(file)
    return OidcClient(
        table["issuer"],
        table["client_id"],
        table["redirect_uri"],
        file,
        scope,
        table.get("token_endpoint", ""),
        _session_minutes(table.get("session_minutes", str(OIDC_SESSION_MINUTES))),
    )


def _session_minutes(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_OIDC_SESSION_MINUTES:
        raise StartupError(
            f"SLUICE_CONSOLE_OIDC: session_minutes must be from 1 to {MAX_OIDC_SESSION_MINUTES}, not {text!r}."
        )
    return int(text)
