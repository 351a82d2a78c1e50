"""A broker with TLS and users as clients meet it: listeners with a login, and one for clients with a certificate."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trustme

from tests.broker_process import BrokerProcess

USER, PASSWORD = "alice", "canary, a=password"
# The name in the client's certificate.
CERTIFIED = "carol"
SASL_SSL = "kafka?auth=scram-sha-256,scram-sha-512,plain&tls=default"
SSL = "kafka?tls=clients"
HTTPS = "https?auth=basic,token"
HTTPS_CERTIFICATE = "https?tls=clients"
_SECONDS = 60.0


class Secured:
    """The broker and the files of its clients, all in one directory.

    Both users may do everything, and so may clients of the listeners without authentication, by which tests prepare
    what they need. `schemes` are listeners beside those above.
    """

    def __init__(
        self, directory: Path, *, environment: dict[str, str] | None = None, schemes: Sequence[str] = ()
    ) -> None:
        self.directory = directory
        authority, clients = trustme.CA(), trustme.CA()
        self.ca = self._file("ca.pem", authority.cert_pem.bytes())
        issued = authority.issue_cert("127.0.0.1", "localhost")
        self.server_certificate = self._file("server.pem", issued.cert_chain_pems[0].bytes())
        server_key = self._file("server.key", issued.private_key_pem.bytes())
        client_ca = self._file("clients.pem", clients.cert_pem.bytes())
        client = clients.issue_cert("carol@example.org", common_name=CERTIFIED)
        self.certificate = self._file("carol.pem", client.cert_chain_pems[0].bytes())
        self.key = self._file("carol.key", client.private_key_pem.bytes())
        self.password_file = self._file("password", PASSWORD.encode() + b"\n")
        default = {"certificate": str(self.server_certificate), "key": str(server_key)}
        rules = r"RULE:^CN=([^,\\]+),.*$/$1/"
        mutual = {**default, "client_ca": str(client_ca), "principal_mapping_rules": rules}
        admins = (f"User:{USER}", f"User:{CERTIFIED}", "User:ANONYMOUS")
        self.broker = BrokerProcess(
            directory / "data",
            options=[part for name in admins for part in ("--super-user", name)],
            environment={
                "SLUICE_TLS": json.dumps({"default": default, "clients": mutual}),
                "SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
                **(environment or {}),
            },
            schemes=(SASL_SSL, SSL, HTTPS, HTTPS_CERTIFICATE, *schemes),
        )

    def _file(self, name: str, content: bytes) -> Path:
        path = self.directory / name
        path.write_bytes(content)
        path.chmod(0o600)
        return path

    def __enter__(self) -> Secured:
        try:
            self.broker.start()
            self.post("/api/v1/users", {"name": USER, "password": PASSWORD})
        except BaseException:
            self.broker.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        died = not self.broker.running
        self.broker.kill()
        log = self.broker.read_log()
        assert not died, f"the broker died during the tests:\n{log[-20_000:]}"
        assert "Traceback" not in log, f"the broker's log holds a traceback:\n{log[-20_000:]}"

    def post(self, path: str, content: dict[str, Any]) -> Any:
        """Send JSON to the HTTP listener without authentication; return the answer."""
        request = urllib.request.Request(
            self.broker.http + path,
            json.dumps(content).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return json.load(answer)

    def token(self) -> str:
        """Make a token of the user."""
        return str(self.post("/api/v1/tokens", {"owner": USER, "description": "test"})["token"])

    def address(self, listener: str) -> tuple[str, int]:
        """Host and port of a listener."""
        return "127.0.0.1", self.broker.ports[listener]

    def bootstrap(self, listener: str) -> str:
        """`host:port` of a listener."""
        return f"127.0.0.1:{self.broker.ports[listener]}"

    def url(self, listener: str) -> str:
        """The base URL of an HTTPS listener."""
        return f"https://{self.bootstrap(listener)}"
