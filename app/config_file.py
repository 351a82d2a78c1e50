"""The configuration file `sluice.toml`, and where each setting comes from.

A file has the settings by their names in lower case: `SLUICE_DATA_DIR` is `data_dir`. Lists are TOML arrays;
`topic_defaults` is a table. A flag wins over the environment, the environment over the file, the file over the
default. The file becomes variables, so that every check is the one that the environment gets.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.settings import PREFIX, SETTINGS, load, plain_fields, variable_of
from core.config import Config
from core.errors import StartupError

CONFIG_VARIABLE = "SLUICE_CONFIG"
_MAX_FILE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Origin:
    """A setting as `sluice config show` prints it."""

    name: str
    value: str
    source: str


def read_file(path: Path) -> dict[str, str]:
    """Return the settings of a file as variables of the environment.

    Raises StartupError that names the file, and the line or the setting that is wrong.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise StartupError(f"Cannot read the configuration file {path}: {error.strerror}.") from None
    if len(data) > _MAX_FILE_BYTES:
        raise StartupError(f"The configuration file {path} is larger than {_MAX_FILE_BYTES} bytes.")
    try:
        values = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StartupError(f"The configuration file {path} is not TOML: {error}.") from None
    known = _known()
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise StartupError(f"{path}: there is no setting {name!r}.{hint}")
    return {known[name]: _text(path, name, value) for name, value in values.items()}


def load_with_file(environ: Mapping[str, str], path: Path | None, **flags: object) -> Config:
    """Return the settings from flags, environment and file; `path` wins over SLUICE_CONFIG.

    Raises StartupError; what comes from the file is named as the file names it.
    """
    path = path or (Path(environ[CONFIG_VARIABLE]) if environ.get(CONFIG_VARIABLE) else None)
    if path is None:
        return load(environ, **flags)  # type: ignore[arg-type]
    from_file = read_file(path)
    try:
        return load({**from_file, **environ}, **flags)  # type: ignore[arg-type]
    except StartupError as error:
        message = str(error)
        for variable in from_file.keys() - environ.keys():
            message = message.replace(variable, f"{path}: {variable.removeprefix(PREFIX).lower()}")
        raise StartupError(message) from None


def origins(environ: Mapping[str, str], path: Path | None) -> list[Origin]:
    """Return every setting with its value and its source: the environment, the file, or the default.

    Raises StartupError for settings that a start would refuse.
    """
    path = path or (Path(environ[CONFIG_VARIABLE]) if environ.get(CONFIG_VARIABLE) else None)
    load_with_file(environ, path)
    from_file = read_file(path) if path else {}
    defaults = {setting.variable: setting.default for setting in SETTINGS}
    defaults |= {variable_of(name): _plain(value) for name, value in plain_fields().items()}
    found = []
    for name, variable in sorted(_known().items()):
        if environ.get(variable):
            found.append(Origin(name, environ[variable], f"environment {variable}"))
        elif variable in from_file:
            found.append(Origin(name, from_file[variable], str(path)))
        else:
            found.append(Origin(name, defaults[variable], "default"))
    return found


def _known() -> dict[str, str]:
    """Name in a file → variable, of every setting."""
    variables = [setting.variable for setting in SETTINGS] + [variable_of(name) for name in plain_fields()]
    return {variable.removeprefix(PREFIX).lower(): variable for variable in variables}


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(path: Path, name: str, value: object) -> str:
    """A value of the file as the environment would have it."""
    if isinstance(value, str | bool | int | float):
        return _plain(value)
    if isinstance(value, list) and all(isinstance(one, str) and "," not in one for one in value):
        return ",".join(value)
    if name == "topic_defaults" and isinstance(value, dict):
        return "; ".join(f"{key}={_plain(one)}" for key, one in _flat(value).items())
    raise StartupError(f"{path}: {name} must be a string, a number, true, false, or a list of strings.")


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """TOML reads `retention.ms = 1` as a table within a table; topic settings have dots in their names."""
    flat: dict[str, object] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            flat[prefix + key] = ",".join(map(str, value))
        else:
            flat[prefix + key] = value
    return flat
