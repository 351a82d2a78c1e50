"""Make the principal of a client's certificate by rules, as Kafka's `ssl.principal.mapping.rules` does (KIP-371).

    rules      rule[, rule …]
    rule       DEFAULT | RULE:pattern/replacement/[L|U]

`DEFAULT` is the whole distinguished name. A rule holds if its pattern matches the whole name; the replacement may
name groups as `$1`, and `L` or `U` makes the result lower or upper case. The first rule that holds decides. If none
holds, the client is refused. A backslash takes the meaning from the character after it: `\\/`, `\\$`.

Patterns are RE2's, whose time is linear in the length of the name, which the client chooses. Java's look-around and
back references within a pattern do not exist there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from core.security.principal import Principal

_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_REPLACEMENT = re.compile(r"\\(.)|\$(\d+)|\$", re.DOTALL)


class MappingError(ValueError):
    """A rule cannot be read."""


class _Rule(NamedTuple):
    """One rule; `pattern` is None for DEFAULT. A replacement has texts, and groups by their numbers."""

    pattern: Any
    replacement: Sequence[str | int]
    case: str


class MappingRules:
    """The rules of one listener. Raises MappingError if they cannot be read."""

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule] = []
        position = 0
        text = text.strip() or "DEFAULT"
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None:
                raise MappingError(
                    f"{text[position:].lstrip()[:60]!r} is neither DEFAULT nor like "
                    "RULE:^CN=([^,]+).*$/$1/L; separate rules by commas"
                )
            self._rules.append(_rule(*found.groups()))
            position = found.end()

    def principal(self, distinguished_name: str) -> Principal | None:
        """Return the principal of a name; None if no rule holds, or the result is empty."""
        for rule in self._rules:
            name = _apply(rule, distinguished_name)
            if name is not None:
                return Principal("User", name) if name else None
        return None


def _rule(default: str | None, pattern: str | None, replacement: str | None, case: str | None) -> _Rule:
    if default or pattern is None or replacement is None:
        return _Rule(None, (), "")
    # Imported here: most brokers have no rules.
    import re2

    try:
        options = re2.Options()
        options.log_errors = False
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        shown = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise MappingError(f"the pattern {pattern!r} cannot be read: {shown}") from None
    return _Rule(compiled, _parts(replacement, compiled.groups), case or "")


def _parts(replacement: str, groups: int) -> list[str | int]:
    """Split a replacement into texts and the numbers of groups, as Java reads it: `$12` is group 12 if it exists."""
    parts: list[str | int] = []
    position = 0
    for found in _REPLACEMENT.finditer(replacement):
        parts.append(replacement[position : found.start()])
        position = found.end()
        if found[1] is not None:
            parts.append(found[1])
            continue
        digits = found[2] or ""
        count = next((n for n in range(len(digits), 0, -1) if int(digits[:n]) <= groups), 0)
        if not count:
            raise MappingError(
                f"the replacement {replacement!r} names a group that the pattern does not have"
            )
        parts += [int(digits[:count]), digits[count:]]
    return [part for part in (*parts, replacement[position:]) if part != ""]


def _apply(rule: _Rule, distinguished_name: str) -> str | None:
    if rule.pattern is None:
        return distinguished_name
    found = rule.pattern.fullmatch(distinguished_name)
    if found is None:
        return None
    name = "".join(part if isinstance(part, str) else found[part] or "" for part in rule.replacement)
    if rule.case:
        return name.lower() if rule.case == "L" else name.upper()
    return name
