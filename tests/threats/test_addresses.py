"""The broker opens connections in few places, to addresses of its settings, or to those that webhooks may reach."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.broker_process import ROOT

# Files that open connections, each with where its addresses come from. A new entry needs that as well: an address
# from a request would let a client reach what only the machine of the broker can reach.
ALLOWED = {
    "app/commands/client.py": "the command line is a client; --url",
    "app/reference/metrics.py": "makes a page of the documentation; its own broker",
    "core/kafka07/registration.py": "the setting zookeeper; nothing is sent",
    "core/kafka07/zookeeper.py": "the setting zookeeper",
    "core/replication/peer.py": "the setting peers",
    "core/security/jwks.py": "the setting oauth",
    "core/client/network.py": "the setting upstream, options of `sluice move`; brokers that its metadata name",
    "core/client/link.py": "calls core/client/network.py",
    "core/queues/webhooks/http_client.py": "webhooks: each address is checked by core/queues/webhooks/addresses.py",
    "app/gateways/links.py": "the setting gateways",
    "app/health.py": "`sluice health` asks the broker at the address that it has written into its data directory",
}
MODULES = {
    "httpx",
    "urllib.request",
    "http.client",
    "ftplib",
    "smtplib",
    "telnetlib",
    "kazoo.client",
    "requests",
    "aiohttp",
}
CALLS = {
    "create_connection",
    "open_connection",
    "open_unix_connection",
    "create_datagram_endpoint",
    "sock_connect",
}


def opens(path: Path) -> bool:
    """Whether a file imports a client, or calls what connects."""
    tree = ast.parse(path.read_text())
    typing = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in typing:
            continue
        if isinstance(node, ast.Import) and any(one.name in MODULES for one in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and (node.module or "") in MODULES:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called = node.func
            if called.attr in CALLS:
                return True
            if called.attr == "connect" and not ast.unparse(called.value).endswith(("engine", "sqlite3")):
                return True
    return False


def test_only_these_files_open_connections() -> None:
    files = {
        str(path.relative_to(ROOT)): path
        for folder in ("app", "core")
        for path in (ROOT / folder).rglob("*.py")
    }
    found = {name for name, path in files.items() if opens(path)}
    assert "core/replication/peer.py" in found, "the test finds what it looks for"
    assert found - ALLOWED.keys() == set()
