"""What a start says that could not reach its cluster: one line with what was tried and what to check."""

from __future__ import annotations

from collections.abc import Iterable

from core.errors import BrokerError, ErrorCode, StartupError

# Refusals of a login. What to check is the same for all of them.
_LOGIN = frozenset(
    {
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
    }
)
_FORBIDDEN = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
)


def startup_error(error: BrokerError, servers: Iterable[object]) -> StartupError:
    """Return what a start says that could not reach its cluster: what was tried, and what to check."""
    tried = ", ".join(map(str, servers))
    why = error.message.rstrip(".")
    if error.code in _LOGIN:
        return StartupError(
            f"The Kafka cluster at {tried} refuses the login: {why}. Check sasl.mechanism, sasl.username and "
            "sasl.password in the file of --upstream-config."
        )
    if error.code in _FORBIDDEN:
        return StartupError(
            f"The Kafka cluster at {tried} does not let this principal in: {why}. Grant it DESCRIBE on the "
            "cluster and on its topics."
        )
    if "certificate" in why.lower() or "ssl" in why.lower() or "tls" in why.lower():
        return StartupError(
            f"No TLS connection to the Kafka cluster at {tried}: {why}. Check security.protocol, ssl.ca.location or "
            "ssl.truststore.location, and whether the certificate names the host."
        )
    return StartupError(
        f"No broker of the Kafka cluster answers. Tried {tried}: {why}. Check --upstream, and security.protocol in "
        "the file of --upstream-config: a broker that expects TLS or a login closes other connections."
    )
