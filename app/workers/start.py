"""From `sluice serve --workers N` to the parent: bind the sockets, then replace this process by the small one."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from app.http.server import bind_for_workers
from app.workers.parent import DIRECTORY, Setting
from core.config import Config
from core.errors import StartupError

# The longest path of a UNIX socket is 107 bytes (sun_path of unix(7)); the name of the socket is part of it.
_LONGEST_DIRECTORY = 107 - len("/worker-000.sock")


def run_parent(config: Config, arguments: Sequence[str]) -> NoReturn:
    """Bind the HTTP listeners and become the parent. A start that fails is one line on stderr, and exit code 1."""
    try:
        bound = [bind_for_workers(e, config.workers) for e in config.listeners if e.scheme == "http"]
        sockets = _socket_directory(Path(config.data_dir))
    except StartupError as error:
        print(f"sluice: {error}", file=sys.stderr)
        sys.exit(1)
    for one in (s for listener in bound for s in listener):
        os.set_inheritable(one.fileno(), True)
    # Not from the current directory, which may have a package with the name "app".
    places = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    setting = Setting(
        [sys.executable, "-P", "-m", "app", *arguments],
        config.workers,
        str(config.data_dir),
        str(sockets),
        [[one.fileno() for one in listener] for listener in bound],
        config.log_format,
    )
    _become_parent(setting)


def _become_parent(setting: Setting) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    program = [sys.executable, "-P", "-m", "app.workers.parent", json.dumps(setting._asdict())]
    os.execv(sys.executable, program)


def _socket_directory(data_dir: Path) -> Path:
    """Return the directory of the workers' UNIX sockets: in the data directory, if the path is short enough."""
    directory = data_dir.resolve() / DIRECTORY
    if len(os.fsencode(directory)) > _LONGEST_DIRECTORY:
        return Path(tempfile.mkdtemp(prefix="sluice-workers-"))
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StartupError(
            f"The data directory {data_dir} cannot be written ({error.strerror}). Choose another with --data-dir."
        ) from None
    return directory
