"""Flags from the settings of a job, which define name, type, help and default."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import click
import msgspec

from pipeline.jobs.settings import Job


class _Pair(click.ParamType[tuple[str, str]]):
    """`key=value`."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """The two halves."""
        if isinstance(value, tuple):
            return value
        key, equals, rest = str(value).partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not key=value", param, ctx)
        return key, rest


def _parts(hint: Any) -> tuple[Any, str]:
    """(type without None and annotations, description)."""
    text = ""
    while get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        text = next(
            (note.description for note in notes if isinstance(note, msgspec.Meta) and note.description), text
        )
        hint = inner
    if get_origin(hint) in (Union, types.UnionType):
        hint, deeper = _parts(next(one for one in get_args(hint) if one is not type(None)))
        text = text or deeper
    return hint, text


def flag_name(field: str) -> str:
    """`--max-rows` for `max_rows`; a list is given one by one, so `topics` is `--topic`."""
    return "--" + {"topics": "topic"}.get(field, field).replace("_", "-")


def options(kind: type[Job]) -> list[click.Option]:
    """The flags of a kind of job, its own first. A flag that is not given is not passed on."""
    hints = get_type_hints(kind, include_extras=True)
    own = [name for name in kind.__struct_fields__ if name not in Job.__struct_fields__]
    found = []
    for field in [*own, *Job.__struct_fields__]:
        inner, text = _parts(hints[field])
        default = next(one for one in msgspec.structs.fields(kind) if one.name == field)
        shown = (
            ""
            if default.required
            else f" [{default.default}]"
            if default.default not in (None, False, msgspec.NODEFAULT)
            else ""
        )
        about: dict[str, Any] = {
            "help": text + (" [required]" if default.required else shown),
            "default": None,
        }
        names = [flag_name(field), field]
        if get_origin(inner) is list:
            found.append(click.Option(names, multiple=True, metavar="TEXT", **{**about, "default": ()}))
        elif get_origin(inner) is dict:
            found.append(click.Option(names, multiple=True, type=_Pair(), **{**about, "default": ()}))
        elif get_origin(inner) is Literal:
            found.append(click.Option(names, type=click.Choice(get_args(inner)), **about))
        elif inner is bool:
            found.append(click.Option(names, is_flag=True, **about))
        else:
            found.append(click.Option(names, type=inner, **about))
    return found


def given(kind: type[Job], values: dict[str, Any]) -> dict[str, Any]:
    """The flags that were given, as the settings take them."""
    found = {}
    for field in kind.__struct_fields__:
        value = values.get(field)
        if value is None or value == ():
            continue
        if isinstance(value, tuple):
            pairs = value and isinstance(value[0], tuple)
            value = dict(value) if pairs else list(value)
        found[field] = value
    return found
