"""The setting `oauth`: the issuers whose access tokens (JWTs) let clients in.

issuer=https://…; audience=sluice; algorithms=RS256,ES256     one issuer
{"NAME": {"issuer": …}, …}     the tables [oauth.NAME] of the configuration file, as JSON

Issuer, audience and algorithms have no default. A broker that checked less would take tokens that were made for
others (CVE-2026-33557, CVE-2026-110985).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from app.setting_tables import named_tables, refuse_unknown, table_of_pairs, text_member
from core.config import Config, Endpoint, JwtIssuer
from core.errors import StartupError
from core.security.jwks import ALGORITHMS, url_problem

_EXAMPLE = "issuer=https://…; audience=sluice; algorithms=RS256"
_LISTS = ("audience", "algorithms")
_MEMBERS = ("issuer", *_LISTS, "jwks_uri", "principal_claim", "principal_prefix")
_ALLOWED = sorted(frozenset().union(*ALGORITHMS.values()))
# The words of the option `auth` of listeners that take such tokens.
_WORDS = frozenset({"jwt", "oauthbearer"})


def parse_oauth(text: str) -> tuple[JwtIssuer, ...]:
    """Return the issuers of the setting, none if it is empty. Raises StartupError."""
    text = text.strip()
    if not text:
        return ()
    if text.startswith("{"):
        tables = named_tables("SLUICE_OAUTH", text, "")
    else:
        tables = {"": table_of_pairs("SLUICE_OAUTH", text, _EXAMPLE)}
    issuers = tuple(_issuer(name, table) for name, table in tables.items())
    for index, one in enumerate(issuers):
        for other in issuers[:index]:
            if one.issuer == other.issuer:
                raise StartupError(f"SLUICE_OAUTH: the issuer {one.issuer} is there more than once.")
            if one.principal_prefix == other.principal_prefix:
                raise StartupError(
                    f"SLUICE_OAUTH: the issuers {other.issuer} and {one.issuer} could name the same user. Give "
                    "each its own principal_prefix; one of them may have none."
                )
    return issuers


def refuse_tokens_without_issuer(listeners: Iterable[Endpoint], config: Config) -> None:
    """Raise StartupError for a listener that takes tokens of issuers if none is configured."""
    for endpoint in listeners:
        asked = sorted(_WORDS & set(endpoint.authentication))
        if asked and not config.oauth:
            raise StartupError(
                f"The listener {endpoint} takes {asked[0]}, and there is no issuer of tokens: set SLUICE_OAUTH to "
                "'issuer=https://…; audience=…; algorithms=RS256'."
            )


def _issuer(name: str, table: Any) -> JwtIssuer:
    where = f"SLUICE_OAUTH: the issuer {name!r}" if name else "SLUICE_OAUTH"
    if not isinstance(table, dict):
        raise StartupError(f"{where} must be a table [oauth.NAME].")
    refuse_unknown(where, table, _MEMBERS)
    texts = {
        member: text_member(where, member, value) for member, value in table.items() if member not in _LISTS
    }
    audience, algorithms = (_list(where, member, table.get(member, "")) for member in _LISTS)
    issuer, claim = texts.get("issuer", ""), texts.get("principal_claim", "sub")
    for member, given in (("issuer", issuer), ("audience", audience), ("algorithms", algorithms)):
        if not given:
            raise StartupError(f"{where} needs {member}: without it tokens for others would be taken.")
    for member, url in (("issuer", issuer), ("jwks_uri", texts.get("jwks_uri", ""))):
        if url and (problem := url_problem(url)):
            raise StartupError(f"{where}: {member} {url!r} {problem}.")
    for algorithm in algorithms:
        if algorithm not in _ALLOWED:
            raise StartupError(
                f"{where}: algorithms must be some of {', '.join(_ALLOWED)}, not {algorithm!r}."
            )
    if not claim:
        raise StartupError(f"{where}: principal_claim must be the name of a claim, such as sub.")
    return JwtIssuer(
        issuer, audience, algorithms, texts.get("jwks_uri", ""), claim, texts.get("principal_prefix", "")
    )


def _list(where: str, member: str, value: Any) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else text_member(where, member, value).split(",")
    return tuple(filter(None, (text_member(where, member, part) for part in parts)))
