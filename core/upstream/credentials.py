"""The credentials and TLS files of a gateway's client, read again when they change: no restart for a rotation.

The files are checked every `tls_check_interval_ms` and after SIGUSR1, as those of the process's own certificates.
Connections that are open stay: their brokers end them, or ask for another login (KIP-368), which uses the new
credentials. Files that cannot be used leave the former ones in use; that is logged once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from core.client.settings import ClientSettings
from core.config import Config, Upstream
from core.errors import StartupError

log = logging.getLogger(__name__)

# Properties that name files.
_FILES = (
    "ssl.ca.location", "ssl.truststore.location", "ssl.certificate.location", "ssl.key.location",
    "ssl.keystore.location",
)  # fmt: skip

_Stamps = list[tuple[int, int, int] | None]


class Credentials:
    """Watches the files of one cluster's properties.

    `settings_of` makes settings of properties and raises StartupError; `use` takes them for connections to come.
    """

    def __init__(
        self,
        config: Config,
        upstream: Upstream,
        settings: ClientSettings,
        settings_of: Callable[[Upstream], ClientSettings],
        use: Callable[[ClientSettings], None],
    ) -> None:
        self._interval = config.tls_check_interval_ms / 1000
        self._upstream = upstream
        self._settings = settings
        self._settings_of = settings_of
        self._use = use
        self._properties: Mapping[str, str] = upstream.properties
        self._seen = self._stamps()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to check."""
        if self._upstream.file is not None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._look)

    def stop(self) -> None:
        """End the checks."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self.check()
        self.start()

    def check(self, *, force: bool = False) -> None:
        """Read the files again if they have changed, or if `force`."""
        if self._upstream.read is None:
            return
        stamps = self._stamps()
        if stamps == self._seen and not force:
            return
        self._seen = stamps
        try:
            properties = self._upstream.read()
            found = self._settings_of(self._upstream.with_properties(properties))
            self._refuse_another_kind(found)
        except StartupError as error:
            log.error("the changed credentials of the Kafka cluster are not used: %s", error)
            return
        # Other files may be named now.
        self._properties = properties
        self._seen = self._stamps()
        self._settings = found
        self._use(found)
        log.info("the credentials of the Kafka cluster were read again; connections to come use them")

    def _refuse_another_kind(self, found: ClientSettings) -> None:
        known = self._settings

        def kind(one: ClientSettings) -> tuple[bool, str]:
            return one.tls is not None, "" if one.login is None else one.login.mechanism

        if kind(found) != kind(known):
            raise StartupError(
                "security.protocol and sasl.mechanism cannot change while the gateway runs: restart it."
            )

    def _stamps(self) -> _Stamps:
        """By what a change of a file is noticed; None for one that is missing."""
        if self._upstream.file is None:
            return []
        paths = [
            self._upstream.file,
            *(Path(self._properties[name]) for name in _FILES if self._properties.get(name)),
        ]
        stamps: _Stamps = []
        for path in paths:
            try:
                status = path.stat()
            except OSError:
                stamps.append(None)
            else:
                stamps.append((status.st_ino, status.st_size, status.st_mtime_ns))
        return stamps
