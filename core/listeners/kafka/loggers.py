"""The loggers of this process, as Kafka's BROKER_LOGGER resource shows and sets them (KIP-412).

Kafka's levels are those of Log4j: TRACE and DEBUG are one here, FATAL is Python's CRITICAL. Levels hold until a
restart. A logger without a level of its own has that of the next one above it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from core.errors import BrokerError, ErrorCode

ROOT = "root"
_LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": logging.DEBUG,
    "WARN": logging.WARNING,
}


def describe_loggers() -> dict[str, str]:
    """Return the level in force of each logger, by name, the root first."""
    found = {ROOT: logging.getLogger()}
    for name, logger in sorted(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger):
            found[name] = logger
    return {name: _word(logger.getEffectiveLevel()) for name, logger in found.items()}


def set_levels(levels: Mapping[str, str | None], *, validate_only: bool = False) -> None:
    """Set levels by the names of loggers. None: the logger gets the level of the next one above it.

    All are set, or none. Raises INVALID_CONFIG for an unknown logger or level, INVALID_REQUEST for the root
    without a level.
    """
    known = describe_loggers()
    for name, level in levels.items():
        if name not in known:
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"Logger {name[:200]} does not exist!")
        if level is None and name == ROOT:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
            )
        if level is not None and level not in _LEVELS:
            raise BrokerError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {level[:200]} as it is not a supported log level. Valid log "
                f"levels are {', '.join(_LEVELS)}",
            )
    if not validate_only:
        for name, level in levels.items():
            logger = logging.getLogger() if name == ROOT else logging.getLogger(name)
            logger.setLevel(logging.NOTSET if level is None else _LEVELS[level])


def _word(level: int) -> str:
    """The nearest level of Kafka that is not above `level`."""
    for word in ("FATAL", "ERROR", "WARN", "INFO"):
        if level >= _LEVELS[word]:
            return word
    return "DEBUG"
