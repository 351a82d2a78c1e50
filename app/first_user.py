"""The first user of a broker that asks its clients to log in: by a file with a password, or by a setup token.

Without a user no client could log in. So a start that finds none creates `admin` with the password of
`SLUICE_ADMIN_PASSWORD_FILE`, or makes a setup token: it is shown on a terminal, else written to `admin-token` in the
data directory, which only the owner of the process may read. Never is it a line of a log.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from core.config import CALLER, Config, Endpoint
from core.errors import BrokerError, StartupError
from core.security.private_files import is_private
from core.security.self_signed import files_of
from core.security.setup import SetupToken
from core.vocabulary.users import Users

log = logging.getLogger(__name__)

ADMIN = "admin"
TOKEN_FILE = "admin-token"
_MAX_PASSWORD_FILE_BYTES = 10_000


def read_password_file(path: Path) -> str:
    """Return the password in a file, without the end of its line. Raises StartupError.

    A file that others than its owner may use is refused (`is_private`).
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(_MAX_PASSWORD_FILE_BYTES)
    except OSError as error:
        raise StartupError(f"Cannot read the password file {path}: {error.strerror}.") from None
    if not is_private(status):
        raise StartupError(f"Others may use the password file {path}. Change that with chmod 600.")
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise StartupError(f"The password file {path} is not UTF-8.") from None


async def prepare(config: Config, users: Users) -> None:
    """Create `admin` if there is no user and a file with its password. Raises StartupError."""
    if config.admin_password_file is None or users.all():
        return
    password = read_password_file(config.admin_password_file)
    try:
        await users.create(ADMIN, password)
    except BrokerError as error:
        raise StartupError(f"Cannot create the user {ADMIN!r}: {error.message}") from None
    log.info("created the user %r with the password of %s", ADMIN, config.admin_password_file)


def announce(
    config: Config,
    endpoints: Sequence[Endpoint],
    users: Users,
    setup: SetupToken,
    *,
    terminal: bool,
    say: Callable[[str], None],
) -> None:
    """Say what users must know before they log in; make the setup token if there is no user."""
    (file := Path(config.data_dir) / TOKEN_FILE).unlink(missing_ok=True)
    asking = [endpoint for endpoint in endpoints if endpoint.authentication]
    if not asking:
        return
    if users.all() or (config.upstream is not None and config.upstream.identity == CALLER):
        return
    http = next((endpoint for endpoint in asking if endpoint.scheme == "http"), None)
    if http is None or "token" not in http.authentication:
        say("There is no user yet, so no client can log in. Create one with `sluice users create`.")
        return
    token = setup.issue()
    command = f"sluice users create {ADMIN} --url {http.reachable.url}"
    if any(one.name == http.tls and one.certificate is None for one in config.tls):
        command += f" --ca {files_of(Path(config.data_dir), http.tls)[0]}"
    if terminal:
        shown = f"Its setup token, for 15 minutes: {token}"
    else:
        file.touch(mode=0o600, exist_ok=False)
        file.write_text(token + "\n")
        command += f" --token-file {file}"
        shown = f"Its setup token is in {file}, valid for 15 minutes"
    say(f"There is no user yet. Create the first:\n  {command}\n{shown}")
