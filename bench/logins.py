"""What a login by SCRAM costs the server."""

from __future__ import annotations

import tempfile
from pathlib import Path

import httpx

from bench.case import Figure, case, median_of
from bench.load import Connection
from bench.server import measured_cpu
from core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from core.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker_process import BrokerProcess
from tests.core.security.scram_client import ScramClient

LOGINS = 100
TARGET = 2.0
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
_LISTENER = "kafka?auth=scram-sha-256"


@case
def scram_logins(repeats: int) -> list[Figure]:
    """The processor time of a server for a connection that logs in by SCRAM-SHA-256 and ends."""
    times: list[float] = []
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        options = ["--super-user", "User:ANONYMOUS", "--insecure-passwords"]
        process = BrokerProcess(Path(name) / "data", options=options, schemes=("http", _LISTENER))
        try:
            process.start()
            user = {"name": "alice", "password": "a right password"}
            httpx.post(f"{process.http}/api/v1/users", json=user, trust_env=False).raise_for_status()
            address = ("127.0.0.1", process.ports[_LISTENER])
            for _ in range(repeats):
                with measured_cpu(process) as used:
                    for _ in range(LOGINS):
                        _log_in(address)
                times.append(used[0] / LOGINS * 1e3)
        finally:
            process.kill()
    return [median_of("a login by SCRAM-SHA-256", times, "ms", TARGET)]


def _log_in(address: tuple[str, int]) -> None:
    client = ScramClient("alice", "a right password")
    connection = Connection(address)
    connection.call(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
    first = connection.call(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=client.first()))
    proof = SaslAuthenticateRequest(auth_bytes=client.final(bytes(first.auth_bytes)))
    last = connection.call(SASL_AUTHENTICATE, 2, proof)
    assert client.verify(bytes(last.auth_bytes)), last
    connection.close()
