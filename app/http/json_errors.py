"""Describe what is wrong with a JSON body, and where: by record and field.

msgspec names the error and, at best, a byte position. The path to that position is searched only when a body is
refused, so valid requests cost nothing more.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

import msgspec

from app.errors import Problem, field_error

# Beyond this position only the byte is reported, without a path: to find a path costs about 0.2 µs a byte.
SEARCH_LIMIT = 256 * 1024
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]', re.DOTALL)
# An escaped backslash, a whole surrogate pair, or (the group) half a pair.
_SURROGATES = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_AT_BYTE = re.compile(r" \(byte (\d+)\)$")
_AT_PATH = re.compile(r" - at `\$?(.*?)`$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_NAMES = {"int": "a whole number", "str": "a string", "null": "null", "array": "an array", "object": "an object",
          "float": "a number", "bool": "true or false"}  # fmt: skip


class Fault(NamedTuple):
    """One thing that is wrong. `path` leads to it: member names and array indexes."""

    detail: str
    path: tuple[str | int, ...]
    malformed: bool
    # Whether the value has the wrong type. False for a missing or unknown member.
    wrong_type: bool = False

    @property
    def pointer(self) -> str:
        """The path as a JSON pointer in a URI fragment."""
        steps = (str(step).replace("~", "~0").replace("/", "~1") for step in self.path)
        return "#" + "".join("/" + step for step in steps)

    @property
    def record(self) -> int | None:
        """Return the index of the wrong record; None if the path has none."""
        if len(self.path) >= 2 and self.path[0] == "records" and isinstance(self.path[1], int):
            return self.path[1]
        return None

    @property
    def field(self) -> str | None:
        """Return the wrong member of the record, or of the body, such as `headers[0].value`."""
        steps = self.path[2:] if self.record is not None else self.path
        text = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in steps)
        return text.removeprefix(".") or None


def fault_of(body: bytes, error: Exception) -> Fault:
    """Return the fault of a JSON body from msgspec's error, a RecursionError or a UnicodeDecodeError."""
    if isinstance(error, RecursionError):
        return Fault("The JSON is nested too deep.", (), True)
    if isinstance(error, UnicodeDecodeError):
        return Fault(f"The text is not UTF-8 at byte {error.start}.", path_at(body, error.start), True)
    text = str(error)
    if isinstance(error, msgspec.ValidationError):
        return _shape_fault(text)
    if (half := _half_surrogate(body)) >= 0:
        return Fault(f"Half a surrogate pair at byte {half}: it is no character.", path_at(body, half), True)
    if found := _AT_BYTE.search(text):
        position = int(found[1])
        what = text[: found.start()].removeprefix("JSON is malformed: ")
        return Fault(f"The JSON is malformed at byte {position}: {what}.", path_at(body, position), True)
    return Fault("The JSON ends too early.", path_at(body, len(body)), True)


def _shape_fault(text: str) -> Fault:
    """Return a fault of type in plain words, from `Expected X, got Y - at $.records[1].partition`."""
    path: tuple[str | int, ...] = ()
    if found := _AT_PATH.search(text):
        text = text[: found.start()]
        path = tuple(
            int(m[2]) if m[2] and m[2].isdigit() else (m[1] or m[2]) for m in _STEP.finditer(found[1])
        )
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", text, re.DOTALL):
        name = unknown[1]
        return Fault(f"There is no member named {name[:60]!r} here.", (*path, name), False)
    if missing := re.fullmatch(r"Object missing required field `(.*)`", text, re.DOTALL):
        return Fault(f"The member {missing[1]!r} is missing.", (*path, missing[1]), False)
    if wrong := re.fullmatch(r"Expected `(.*)`, got `(.*)`", text):
        wanted = " or ".join(_NAMES.get(part, part) for part in wrong[1].split(" | "))
        return Fault(
            f"It must be {wanted}, not {_NAMES.get(wrong[2], wrong[2])}.", path, False, wrong_type=True
        )
    return Fault(f"{text}.", path, False, wrong_type=True)


def _half_surrogate(body: bytes) -> int:
    for match in _SURROGATES.finditer(body):
        if match.start(1) >= 0:
            return match.start(1)
    return -1


def path_at(body: bytes, position: int) -> tuple[str | int, ...]:
    """Return the member names and indexes that lead to a byte of a JSON text; it is valid before that byte."""
    if position > SEARCH_LIMIT:
        return ()
    path: list[str | int] = []
    kinds: list[bool] = []  # for each open bracket: whether it is an array
    name = b""
    for token in _TOKEN.finditer(body, 0, min(position + 1, len(body))):
        text = token[0]
        if token.start() >= position:
            break
        if text in (b"{", b"["):
            kinds.append(text == b"[")
            path.append(0 if text == b"[" else "")
        elif text in (b"}", b"]"):
            if kinds:
                kinds.pop()
                path.pop()
        elif text == b"," and kinds:
            last = path[-1]
            path[-1] = last + 1 if isinstance(last, int) else ""
        elif text == b":" and kinds and not kinds[-1]:
            path[-1] = _name(name)
        else:
            name = text
    return tuple(step for step in path if step != "")


def _name(quoted: bytes) -> str:
    try:
        return msgspec.json.decode(quoted, type=str)
    except msgspec.DecodeError:
        return quoted.strip(b'"').decode(errors="replace")


def refuse_fault(fault: Fault, status: int | None = None) -> NoReturn:
    """Raise the Problem for a fault of a body: 400 when it cannot be read, 422 when it is not acceptable.

    `status` replaces that status.
    """
    detail = fault.detail
    where: dict[str, object] = {}
    if fault.record is not None:
        where["record"] = fault.record
    if fault.field:
        where["field"] = fault.field
    if fault.record is not None:
        at = f", field {fault.field!r}" if fault.field else ""
        detail = f"Record {fault.record}{at}: {detail}"
    elif fault.field:
        detail = f"Field {fault.field!r}: {detail}"
    entry = field_error(fault.detail, pointer=fault.pointer, **where)
    kind = "malformed-request" if fault.malformed else "invalid-request"
    raise Problem(kind, detail, status=status, errors=[entry])
