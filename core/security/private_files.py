"""Which files with a secret may be used: private keys, and files with a password.

The rule is PostgreSQL's for its key: a file is for its owner alone. Mounted secrets of Kubernetes and credentials of
systemd belong to root, and the broker reads them as a member of their group or by an access control list, which shows
as bits of the group. So a file of root may be readable by its group.
"""

from __future__ import annotations

import os
import stat

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_OF_ROOT = stat.S_IWGRP | stat.S_IXGRP | stat.S_IRWXO


def is_private(status: os.stat_result) -> bool:
    """Return whether a file is for its owner alone, or belongs to root and its group may at most read it.

    A process of root has no need of the second. What is no regular file, as the pipe of a shell's `<(…)`, has no bits
    that mean anything.
    """
    if not stat.S_ISREG(status.st_mode):
        return True
    of_root = status.st_uid == 0 != os.geteuid()
    return not status.st_mode & (_OTHERS_OF_ROOT if of_root else _OTHERS)
