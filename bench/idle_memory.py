"""What security takes of memory before its first use."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from bench.case import Figure, case, median_of
from bench.server import resident_bytes
from core.clock import Clock
from core.security.self_signed import ensure
from tests.broker_process import BrokerProcess

# Beside a broker without security, in MiB: its libraries are loaded on first use.
TARGET = 5.0
SETTLED_SECONDS = 1.0
_MIB = 1024 * 1024
_LISTENERS = (
    "kafka?auth=scram-sha-256,scram-sha-512,plain,oauthbearer&tls=default",
    "https?auth=basic,token,jwt&tls=default",
)
# Nothing listens there: the keys of an issuer are fetched for its first token.
_ISSUER = "issuer=http://127.0.0.1:1; audience=sluice; algorithms=RS256"


@case
def idle_memory(repeats: int) -> list[Figure]:
    """Resident memory of an idle broker without security, and with TLS, SASL, one user and an issuer of JWTs."""
    without: list[float] = []
    secured: list[float] = []
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        directory = Path(name)
        certificate, key = directory / "certificate.pem", directory / "key.pem"
        ensure(certificate, key, ["127.0.0.1"], Clock())
        password = directory / "password"
        password.write_text("a right password\n")
        password.chmod(0o600)
        environment = {
            "SLUICE_TLS": json.dumps({"default": {"certificate": str(certificate), "key": str(key)}}),
            "SLUICE_OAUTH": _ISSUER,
            "SLUICE_ADMIN_PASSWORD_FILE": str(password),
        }
        plain = BrokerProcess(directory / "plain")
        full = BrokerProcess(directory / "full", schemes=_LISTENERS, environment=environment)
        for broker in (plain, full):
            # The first start makes the data directory, and the user with PBKDF2.
            _idle(broker)
        assert "created the user" in full.read_log()
        for _ in range(min(repeats, 5)):
            without.append(_idle(plain))
            secured.append(_idle(full))
    more = [with_it - bare for with_it, bare in zip(secured, without, strict=True)]
    return [
        median_of("resident memory, idle, without security", without, "MiB"),
        median_of("resident memory, idle, with security", secured, "MiB"),
        median_of("  that is, more", more, "MiB", TARGET),
    ]


def _idle(broker: BrokerProcess) -> float:
    """Start a broker, let it rest, and stop it; return its resident memory in MiB."""
    try:
        broker.start()
        time.sleep(SETTLED_SECONDS)
        return resident_bytes(broker.pid) / _MIB
    finally:
        broker.stop()
