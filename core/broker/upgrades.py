"""What an upgrade of the data directory needs beside the migration of its database."""

from __future__ import annotations

import logging
from pathlib import Path

from core.errors import StartupError
from core.log import files
from core.log.segment import SNAPSHOT_SUFFIX

log = logging.getLogger(__name__)

# The revision that brought transactions.
_TRANSACTIONS = "0012"


def before_migration(data_dir: Path, revision: str) -> None:
    """Prepare the logs of a directory whose database is at an older revision. It may be done again after a death.

    Before there were transactions, a batch could have the bit of one. Producer snapshots of that time do not tell it,
    and a reader would take its records for committed. Without them each log is read once from its start, when it is
    opened next; what is open there is aborted then, because no client can end it. Raises StartupError.
    """
    if revision >= _TRANSACTIONS:
        return
    snapshots = sorted(data_dir.glob(f"*/*{SNAPSHOT_SUFFIX}"))
    try:
        for path in snapshots:
            files.remove_if_present(str(path))
    except OSError as error:
        raise StartupError(f"The producer snapshot {path} cannot be removed: {error}.") from error
    log.info("%d producer snapshots from before transactions were removed", len(snapshots))
