"""What all commands share: the gateway's address, `--json`, and how a command ends."""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, NoReturn, ParamSpec

import click
import msgspec
from click.shell_completion import CompletionItem

from app.commands import login
from app.commands.client import DEFAULT_URL, Client, topic_path
from app.commands.errors import INTERRUPTED, CommandError, RefusedError
from app.commands.output import Output
from app.version import VERSION

P = ParamSpec("P")
YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
ISOLATION = click.option(
    "--isolation-level", type=click.Choice(["read_committed", "read_uncommitted"]), default="read_committed",
    show_default=True, help="read_uncommitted: also records of open and aborted transactions.",
)  # fmt: skip
# Loaded with --data-dir alone: it opens the database of a broker, and with it half of the core.
_OFFLINE = "app.offline"


class Session(NamedTuple):
    """What a command works with: a gateway, and where it prints."""

    client: Client
    out: Output

    def topic(self, name: str) -> Any:
        """The detail of a topic; one that does not exist is refused with the nearest name that does."""
        try:
            return self.client.get(topic_path(name))
        except RefusedError as error:
            raise self.explain(error, name) from None

    def explain(self, error: RefusedError, topic: str) -> RefusedError:
        """A refusal that may be about a misspelt topic, with a hint."""
        if error.problem.get("kafka_error") != "UNKNOWN_TOPIC_OR_PARTITION" or "artition" in error.text:
            return error
        import difflib

        try:
            names = [item["name"] for item in self.client.pages("/topics")]
        except CommandError:
            return error
        near = difflib.get_close_matches(topic, names, n=1)
        return error.with_hint(
            f"Did you mean {near[0]!r}?" if near else "`sluice topics list` shows all topics."
        )


def gateway(function: Callable[Concatenate[Session, P], None]) -> Callable[P, None]:
    """A command that calls a gateway: adds `--url`, `--ca`, `--json` and a login, hands it a Session, ends it well.

    A reader that has seen enough (`| head`) is no failure. Ctrl-C before the end is one, without a word.
    """

    @click.option("--url", envvar="SLUICE_URL", default=DEFAULT_URL, show_default=True, metavar="URL",
                  help="The gateway; SLUICE_URL in the environment says the same.")  # fmt: skip
    @click.option("--ca", envvar="SLUICE_CA", metavar="FILE",
                  help="The authority of an https gateway, in PEM; SLUICE_CA says the same.")  # fmt: skip
    @login.options
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        url, as_json = str(kwargs.pop("url")), bool(kwargs.pop("as_json"))
        ca = kwargs.pop("ca")
        out = Output(as_json)
        names = ("user", "user_password_file", "token_file", "cert", "cert_key")
        given = [str(value) if (value := kwargs.pop(name)) else None for name in names]
        client = Client(url, ca if isinstance(ca, str) else None, login.Login(*given))
        try:
            function(Session(client, out), *args, **kwargs)
            out.flush()
        except BrokenPipeError:
            _forget_stdout()
        except KeyboardInterrupt:
            _forget_stdout()
            raise click.exceptions.Exit(INTERRUPTED) from None
        except UnicodeEncodeError as error:
            raise click.UsageError(f"An argument is not valid UTF-8: {error.object[:40]!r}.") from None
        except OSError as error:
            _fail(error)
        except (KeyError, msgspec.MsgspecError) as error:
            raise CommandError(
                f"The gateway answers in a form that is not known here ({type(error).__name__}: {error}).",
                f"This is version {VERSION}; is the gateway another one?",
            ) from None
        finally:
            client.close()

    return run


def _fail(error: OSError) -> NoReturn:
    _forget_stdout()
    if error.errno == errno.EPIPE:
        raise click.exceptions.Exit(0) from None
    where = f"{error.filename}: " if error.filename else "the output cannot be written: "
    raise CommandError(f"{where}{error.strerror or error}.") from None


def _forget_stdout() -> None:
    """Discard Python's own flush at the exit: the pipe has no reader, and the error would be a traceback."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        return


def data_dir(what: str) -> Callable[[Any], Any]:
    """Add --data-dir to a group of commands; `offline` then returns what opens the directory."""

    def keep(context: click.Context, _: click.Parameter, value: Path | None) -> None:
        context.meta[_OFFLINE] = value

    return click.option(
        "--data-dir", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
        expose_value=False, callback=keep,
        help=f"Change the {what} in the data directory of a broker that is stopped, instead of calling one.",
    )  # fmt: skip


def offline(kind: str) -> Any:
    """Return the object of this class of `app.offline` if --data-dir is given, else None."""
    directory = click.get_current_context().meta.get(_OFFLINE)
    return None if directory is None else getattr(import_module(_OFFLINE), kind)(directory)


class TopicName(click.ParamType):  # type: ignore[type-arg]
    """A topic's name; the shell completes it from what the gateway has."""

    name = "topic"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin so. Silent where no gateway answers: a shell waits for this."""
        try:
            client = Client(os.environ.get("SLUICE_URL") or DEFAULT_URL, os.environ.get("SLUICE_CA"))
        except click.ClickException:
            return []
        try:
            page = client.send(
                "GET", "/topics", params={"prefix": incomplete, "page_size": 50}, patient=False
            ).data
            return [CompletionItem(item["name"]) for item in page["items"]]
        except (CommandError, LookupError, TypeError):
            return []
        finally:
            client.close()


def settings(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """`name=value` pairs of a repeatable option. Raises UsageError."""
    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.BadParameter(f"{text!r} is not like NAME=VALUE.", param_hint=option)
        pairs[name.strip()] = value.strip()
    return pairs


def partition_list(text: str | None) -> list[int] | None:
    """Partitions from `0,2-5`; None where nothing is given. Raises BadParameter."""
    if text is None:
        return None
    numbers: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not (low.isascii() and low.isdigit() and (not dash or (high.isascii() and high.isdigit()))):
            raise click.BadParameter(f"{text!r} is not like 0,2-5.", param_hint="--partition")
        numbers += range(int(low), min(int(high) if dash else int(low), int(low) + 100_000) + 1)
    return sorted(set(numbers))


def confirm(question: str, *, yes: bool, what: str) -> None:
    """Ask before something is deleted for good. Without a terminal, --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{what} asks before it does so, and there is no terminal to ask on; add --yes."
        )
    if not click.confirm(question, err=True):
        raise CommandError("Nothing was changed.")
