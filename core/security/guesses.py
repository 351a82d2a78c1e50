"""Wrong passwords: how many checks wait, in all and by address, and which addresses have sent too many wrong ones.

A guesser waits for itself. An address with too many wrong passwords gets no check for a while, except of a password
that was right before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from core.clock import Clock
from core.config import Config
from core.errors import BrokerError, ErrorCode

# Addresses that are noted; if there are more, all are forgotten.
_MAX_NOTED = 10_000
# Seconds whose wrong passwords an address may send at once.
_BURST_SECONDS = 2.0


class Guesses:
    """The limits of one process. An address of IPv6 is its network (`network_of`)."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._waiting: Counter[str] = Counter()
        # Until when the wrong passwords of an address take up its share.
        self._taken: dict[str, float] = {}

    def admit(self, address: str, *, known: bool) -> None:
        """Raise THROTTLING_QUOTA_EXCEEDED unless a password of an address may be checked now.

        `known`: it was right before. A client that has logged in before does not suffer from a guesser with the same
        address.
        """
        config = self._config
        wait = self._taken.get(address, 0.0) - self._clock.monotonic() - _BURST_SECONDS
        if wait > 0 and not known:
            seconds = math.ceil(wait)
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"Too many wrong passwords came from this address; try again in {seconds} s.",
                retry_after=seconds,
            )
        if (
            self._waiting.total() >= config.max_password_checks
            or self._waiting[address] >= config.max_password_checks_per_address
        ):
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                "Too many passwords are being checked; try again in a second.",
            )

    @contextmanager
    def waiting(self, address: str) -> Iterator[None]:
        """Count a check that is under way."""
        self._waiting[address] += 1
        try:
            yield
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]

    def note_wrong(self, address: str) -> None:
        """Count a wrong password of an address."""
        now = self._clock.monotonic()
        if len(self._taken) >= _MAX_NOTED:
            self._taken = {host: until for host, until in self._taken.items() if until > now}
            if len(self._taken) >= _MAX_NOTED:
                self._taken.clear()
        share = 1 / self._config.max_wrong_passwords_per_address
        self._taken[address] = max(self._taken.get(address, 0.0), now) + share
