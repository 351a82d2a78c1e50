"""`python -m app` and the `sluice` command. Without a command it serves."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from app.commands.lazy import LazyGroup
from app.settings import Origin, load_with_file, origins, unknown_variables
from app.version import VERSION
from core.errors import StartupError

OPENAPI_FILE = Path("openapi/openapi.json")
REFERENCE = Path("docs/reference")
FILE = click.Path(path_type=Path, dir_okay=False)


@click.group(
    cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(VERSION, prog_name="sluice")
@click.pass_context
def main(context: click.Context) -> None:
    """A Kafka that you can curl: a broker for Kafka clients and an HTTP gateway, in one process."""
    if context.invoked_subcommand is None:
        context.invoke(serve)


@main.command()
@click.option(
    "--config", "config_file", type=FILE, metavar="FILE", help="Settings in TOML, such as sluice.toml."
)
@click.option("--data-dir", metavar="DIR", help="Where logs and metadata are kept [./sluice-data].")
@click.option(
    "--listener", "listeners", metavar="URL", multiple=True,
    help="http://HOST:PORT, or https://, kafka://, kafka07:// or text://; ?tls at the end adds TLS; repeat it for "
    "more. Port 0 lets the system choose.",
)  # fmt: skip
@click.option(
    "--tls", metavar="CERT,KEY", help="The certificate of listeners with TLS and its key; or: auto."
)
@click.option(
    "--advertised",
    metavar="URL",
    help="The address that the broker gives to Kafka clients, kafka://HOST:PORT.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow listeners that other machines can reach without a login.",
)
@click.option(
    "--insecure-passwords", is_flag=True,
    help="Allow users to log in without TLS over listeners that other machines can reach.",
)  # fmt: skip
@click.option(
    "--allowed-host", "allowed_hosts", metavar="NAME", multiple=True,
    help="A name by which browsers may reach the HTTP listener.",
)  # fmt: skip
@click.option(
    "--allowed-origin", "allowed_origins", metavar="ORIGIN", multiple=True,
    help="The origin of a foreign web page that may read and write.",
)  # fmt: skip
@click.option(
    "--super-user", "super_users", metavar="User:NAME", multiple=True,
    help="A principal that may do everything; with it access rules hold for all others.",
)  # fmt: skip
@click.option("--broker-id", type=int, metavar="N", help="This broker's number in its cluster [1].")
@click.option(
    "--peer", "peers", metavar="N=HOST:PORT", multiple=True,
    help="Another broker of the cluster and its Kafka port; repeat it for more.",
)  # fmt: skip
@click.option(
    "--gateway", "gateways", metavar="NAME=URL", multiple=True,
    help="A gateway over the same cluster, as a=http://HOST:PORT; repeat it for all, this one included.",
)  # fmt: skip
@click.option("--workers", type=int, metavar="N", help="Processes that serve HTTP on the same port [1].")
@click.option("--gateway-name", metavar="NAME", help="The name of this gateway among them.")
@click.option(
    "--upstream", "upstream", metavar="HOST:PORT", multiple=True,
    help="A broker of an existing Kafka cluster, to be a gateway over it; repeat it, or separate by commas.",
)  # fmt: skip
@click.option(
    "--upstream-config",
    metavar="FILE",
    help="Properties of Kafka's clients for that cluster: security.protocol, sasl.mechanism, …",
)
@click.option(
    "--upstream-identity", metavar="NAME", help="As which principal to call that cluster [gateway]."
)
@click.option(
    "--webhooks", is_flag=True, help="Let queues have webhooks although other machines can reach the broker."
)
@click.option(
    "--webhook-allow", metavar="HOST", multiple=True,
    help="A network, address or host that webhooks may reach although it is not public; repeat it for more.",
)  # fmt: skip
@click.option("--v2-dialect", metavar="NAME", help="Whose REST Proxy v2 clients are used to [confluent].")
@click.option("--zookeeper", metavar="HOST:PORT", help="Where clients of Kafka 0.7 look for brokers.")
@click.option("--log-format", metavar="NAME", help="How logs are written: console or json [console].")
@click.option("--log-level", metavar="NAME", help="debug, info, warning or error [info].")
@click.option("--access-log", is_flag=True, help="Log a line for each HTTP request.")
@click.option(
    "--ephemeral", is_flag=True,
    help="For tests: free ports, printed as JSON; a temporary directory; ends with its parent process.",
)  # fmt: skip
def serve(config_file: Path | None = None, ephemeral: bool = False, **flags: Any) -> None:
    """Run the broker: HTTP on 127.0.0.1:8082, Kafka on 127.0.0.1:9092, unless told otherwise.

    Every setting can come from the environment or a configuration file as well:
    docs/reference/settings.md lists them.
    """
    from app.workers.spec import own_spec

    worker = own_spec()
    if worker is None:
        for warning in unknown_variables(os.environ):
            print(f"sluice: {warning}", file=sys.stderr)
    try:
        config = load_with_file(os.environ, config_file, **flags)
    except StartupError as error:
        print(f"sluice: {error}", file=sys.stderr)
        sys.exit(2)
    if worker is not None:
        from app.workers.worker import run_worker

        sys.exit(run_worker(config, worker))
    from app.serve import run, run_ephemeral

    if ephemeral:
        if config.workers > 1:
            print("sluice: --ephemeral is one process; leave --workers out.", file=sys.stderr)
            sys.exit(2)
        if flags.get("data_dir") is not None:
            print("sluice: --ephemeral makes a directory of its own; leave --data-dir out.", file=sys.stderr)
            sys.exit(2)
        sys.exit(run_ephemeral(config, given_listeners=bool(flags.get("listeners"))))
    if config.workers > 1:
        from app.workers.start import run_parent

        run_parent(config, sys.argv[1:])
    sys.exit(run(config))


@main.command()
@click.option(
    "--data-dir", type=click.Path(path_type=Path), envvar="SLUICE_DATA_DIR", default="sluice-data", metavar="DIR",
    show_default=True, help="The data directory of the broker; SLUICE_DATA_DIR in the environment says the same.",
)  # fmt: skip
def health(data_dir: Path) -> None:
    """Say whether the broker of a data directory is ready; exit 1 and one line if not."""
    from app.health import problem

    if found := problem(data_dir):
        print(f"sluice: {found}", file=sys.stderr)
        sys.exit(1)
    click.echo("The broker is ready.")


@main.group()
def config() -> None:
    """Check or show the settings that `serve` would take."""


@config.command()
@click.option("--config", "config_file", type=FILE, metavar="FILE", help="The configuration file.")
def check(config_file: Path | None) -> None:
    """Say whether a start would accept the settings; exit 2 and one line if not."""
    _origins(config_file)
    click.echo("The settings are valid.")


@config.command()
@click.option("--config", "config_file", type=FILE, metavar="FILE", help="The configuration file.")
@click.option("--all", "everything", is_flag=True, help="Show settings that have their default, too.")
def show(config_file: Path | None, everything: bool) -> None:
    """Print each setting, its value, and where the value comes from."""
    rows = [one for one in _origins(config_file) if everything or one.source != "default"]
    if not rows:
        click.echo("Every setting has its default; --all shows them.")
        return
    width, wide = max(len(one.name) for one in rows), max(len(one.value) for one in rows)
    for one in rows:
        click.echo(f"{one.name:{width}}  {one.value:{wide}}  {one.source}".rstrip())


def _origins(config_file: Path | None) -> list[Origin]:
    for warning in unknown_variables(os.environ):
        print(f"sluice: {warning}", file=sys.stderr)
    try:
        return origins(os.environ, config_file)
    except StartupError as error:
        print(f"sluice: {error}", file=sys.stderr)
        sys.exit(2)


@main.command()
@click.option("--check", is_flag=True, help="Only compare; exit 1 when the file is not what the code says.")
@click.option("--stdout", "to_stdout", is_flag=True, help="Print the document instead of writing it.")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), default=OPENAPI_FILE, show_default=True
)
def openapi(check: bool, to_stdout: bool, output: Path) -> None:
    """Write the OpenAPI document of the HTTP API."""
    from app.openapi.document import document_text

    text = document_text()
    if to_stdout:
        click.echo(text, nl=False)
    elif check:
        if not output.is_file() or output.read_text() != text:
            print(f"sluice: {output} is not what the code says; run `sluice openapi`.", file=sys.stderr)
            sys.exit(1)
    else:
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(text)
        except OSError as error:
            print(f"sluice: cannot write {output}: {error.strerror}.", file=sys.stderr)
            sys.exit(1)
        print(f"{output} written")


@main.command(hidden=True)
@click.option("--check", is_flag=True, help="Only compare; exit 1 when a page is not what the code says.")
def docs(check: bool) -> None:
    """Write the reference pages of the documentation, docs/reference."""
    from app.reference.pages import differing, write

    if check:
        files = differing(REFERENCE, main)
        for file in files:
            print(f"sluice: {file} is not what the code says; run `sluice docs`.", file=sys.stderr)
        sys.exit(1 if files else 0)
    for file in write(REFERENCE, main):
        print(f"{file} written")


if __name__ == "__main__":
    main(prog_name="sluice")
