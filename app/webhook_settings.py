"""Settings of webhooks: whether queues may have some, and what they may reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.errors import StartupError
from core.queues.webhooks.addresses import AllowList


def of_webhooks(
    environ: Mapping[str, str], allowed: Sequence[str], *, on: bool | None, without_login: bool
) -> dict[str, object]:
    """Return the settings of webhooks. `on` None: as the environment says.

    `without_login`: clients of other machines need no login, so webhooks reach only what the operator lists. Raises
    StartupError.
    """
    values: dict[str, object] = {} if on is None else {"webhooks": on}
    if without_login:
        values["webhook_allow_only"] = True
    texts = allowed or environ.get("SLUICE_WEBHOOK_ALLOW", "").split(",")
    entries = tuple(text.strip().lower() for text in texts if text.strip())
    try:
        AllowList(entries)
    except ValueError as error:
        raise StartupError(f"SLUICE_WEBHOOK_ALLOW: {error}.") from None
    return values | ({"webhook_allow": entries} if entries else {})
