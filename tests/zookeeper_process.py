"""A ZooKeeper server as a child process: Debian's, with a configuration, a data directory and a port of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

JAR = Path("/usr/share/java/zookeeper.jar")
START_SECONDS = 30.0
# ZooKeeper looks for expired sessions once a tick.
TICK_MS = 200


def zookeeper_path() -> str | None:
    """Java, where ZooKeeper is installed for it."""
    return shutil.which("java") if JAR.exists() else None


class ZooKeeperProcess:
    """One server; it may be killed and started again over the same data, on the same port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "zookeeper.log"
        self._process: subprocess.Popen[bytes] | None = None
        # No other process on this machine asks the system for a port at this moment.
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> ZooKeeperProcess:
        """Start it and wait until it takes connections."""
        java = zookeeper_path()
        assert java is not None and self._process is None
        settings = {
            "tickTime": TICK_MS, "dataDir": self._directory / "data", "clientPort": self.port,
            "clientPortAddress": "127.0.0.1", "admin.enableServer": "false", "minSessionTimeout": 400,
        }  # fmt: skip
        file = self._directory / "zoo.cfg"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        options = ["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [java, *options, "-cp", str(JAR), main, str(file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return self
        raise AssertionError(f"ZooKeeper does not start:\n{self._log.read_text()[-5000:]}")

    def kill(self) -> None:
        """End it at once; its data stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
