"""Managed consumers and keyed writes of a gateway that calls the cluster as its callers: it has neither.

A managed consumer is a member of its group between the requests of its client, and a keyed write may be settled after
its request. Both would need the credentials of a caller that is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from core.vocabulary.capabilities import unsupported
from core.vocabulary.consumers import ConsumerInfo


def refuse_members(*_: Any, **__: Any) -> NoReturn:
    """Raise UNSUPPORTED_VERSION with what a client can do instead."""
    raise unsupported(
        "This gateway calls the cluster as its callers, and keeps none of their credentials after a request: it has "
        "no consumers and no idempotency keys. Read by offset and commit with PATCH /api/v1/groups/{group}/offsets."
    )


class NoConsumers:
    """`broker.consumers` without any consumer: every other call raises UNSUPPORTED_VERSION."""

    def of_group(self, group_id: str) -> Sequence[ConsumerInfo]:
        """Return nothing."""
        return ()

    def __getattr__(self, name: str) -> Any:
        """Return what refuses the call."""
        return refuse_members


class NoKeyedWrites:
    """`broker.idempotency` without keys: every call raises UNSUPPORTED_VERSION."""

    def __getattr__(self, name: str) -> Any:
        """Return what refuses the call."""
        return refuse_members
