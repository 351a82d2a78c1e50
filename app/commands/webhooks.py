"""`sluice queues webhooks`: endpoints that get the records of a queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from app.commands.client import queue_path, segment
from app.commands.moments import DurationType
from app.commands.options import YES, Session, confirm, gateway
from app.commands.output import Cell

DURATION = DurationType()
_FORMATS = click.Choice(["standard-webhooks", "cloudevents-binary", "cloudevents-structured", "raw"])
_SIGNING = click.Choice(["hmac-sha256", "ed25519"])
_queue = click.argument("queue", metavar="QUEUE")
_name = click.argument("name", metavar="WEBHOOK")


@click.group()
def webhooks() -> None:
    """Webhooks of a queue: the broker POSTs its records to an endpoint."""


def _path(queue: str, name: str) -> str:
    return f"{queue_path(queue)}/webhooks/{segment(name)}"


@webhooks.command("list")
@_queue
@gateway
def list_webhooks(session: Session, queue: str) -> None:
    """List the webhooks of QUEUE."""
    items = session.client.get(f"{queue_path(queue)}/webhooks")["items"]
    rows: list[list[Cell]] = [
        [
            one["webhook"],
            one["url"],
            _state(one),
            one["in_flight"],
            one["accepted"],
            one["rejected"],
            one["failed"],
        ]
        for one in items
    ]
    session.out.listing(
        items, ("WEBHOOK", "URL", "STATE", "IN FLIGHT", "ACCEPTED", "REJECTED", "FAILED"), rows
    )


def _state(one: Mapping[str, Any]) -> str:
    if not one["enabled"] or one["off_because"]:
        return "off"
    return "running" if one["circuit"] == "closed" else f"circuit {one['circuit']}"


@webhooks.command("put")
@_queue
@_name
@click.argument("endpoint", metavar="URL")
@click.option("--format", "form", type=_FORMATS, help="The form of requests; default standard-webhooks.")
@click.option("--signing", type=_SIGNING, help="How the secret of a new webhook is made.")
@click.option("--secret-file", type=click.File(), metavar="FILE", help="A file with the secret; - is stdin.")
@click.option("--concurrency", type=click.IntRange(1, 256), metavar="N", help="Requests at the same time.")
@click.option(
    "--timeout", "timeout_ms", type=DURATION, metavar="DURATION", help="For one request; default 15s."
)
@click.option("--rate", "rate_per_second", type=float, metavar="N", help="Requests per second at most.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME:VALUE", help="A header to send; repeatable."
)
@click.option("--reject-422", is_flag=True, help="Give a record up if the endpoint answers 422.")
@click.option("--reject-4xx", is_flag=True, help="The same for all of 4xx but 408, 410, 425 and 429.")
@click.option("--disabled", is_flag=True, help="Send nothing yet.")
@gateway
def put_webhook(session: Session, /, queue: str, name: str, endpoint: str, **settings: Any) -> None:
    """POST the records of QUEUE to URL. The secret of a new webhook is shown once."""
    body: dict[str, Any] = {"url": endpoint, "enabled": not settings["disabled"]}
    if settings["form"] is not None:
        body["format"] = settings["form"]
    for option in ("signing", "concurrency", "timeout_ms", "rate_per_second"):
        if settings[option] is not None:
            body[option] = settings[option]
    for switch in ("reject_422", "reject_4xx"):
        if settings[switch]:
            body[switch] = True
    if settings["headers"]:
        body["headers"] = dict(map(_header, settings["headers"]))
    if settings["secret_file"] is not None:
        body["secret"] = settings["secret_file"].read().strip()
    answer = session.client.send("PUT", _path(queue, name), body=body)
    what = "created" if answer.status == 201 else "has these settings"
    session.out.result(answer.data, f"Webhook {name} {what}.{_secret(answer.data)}")


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not separator:
        raise click.UsageError(f"A header is NAME:VALUE, not {name!r}.")
    return name.strip(), value.strip()


def _secret(data: Mapping[str, Any]) -> str:
    if data["secret"] is None:
        return ""
    return f" Its secret, shown once: {data['secret']}"


@webhooks.command("describe")
@_queue
@_name
@gateway
def describe_webhook(session: Session, queue: str, name: str) -> None:
    """Show a webhook, and how its endpoint does."""
    client, out = session
    one = client.get(_path(queue, name))
    out.descriptions([one], lambda document: _show(session, document))


def _show(session: Session, one: Mapping[str, Any]) -> None:
    session.out.heading(f"Webhook {one['webhook']} of queue {one['queue']}")
    session.out.facts(
        (
            ("url", one["url"]),
            ("state", _state(one)),
            ("off because", one["off_because"]),
            ("failing since", one["failing_since"]),
            ("format", one["format"]),
            ("signing", one["signing"]),
            ("public keys", ", ".join(one["public_keys"]) or None),
            ("headers", ", ".join(one["header_names"]) or None),
            ("requests", f"{one['in_flight']} of {one['limit']} now, {one['concurrency']} at most"),
            ("accepted", one["accepted"]),
            ("rejected", one["rejected"]),
            ("failed", one["failed"]),
        )
    )


@webhooks.command("delete")
@_queue
@_name
@YES
@gateway
def delete_webhook(session: Session, queue: str, name: str, yes: bool) -> None:
    """Delete a webhook. The queue keeps its records."""
    confirm(f"Delete webhook {name} of queue {queue}?", yes=yes, what="delete")
    session.client.send("DELETE", _path(queue, name))
    session.out.result({"deleted": name}, f"Webhook {name} deleted.")


@webhooks.command("test")
@_queue
@_name
@gateway
def test_webhook(session: Session, queue: str, name: str) -> None:
    """Send a sample record, and show what the endpoint answers."""
    answer = session.client.send("POST", f"{_path(queue, name)}:test").data
    what = answer["error"] or f"status {answer['status']}"
    session.out.result(answer, f"{what}, {answer['duration_ms']} ms: a record would be {answer['verdict']}.")


@webhooks.command("rotate-secret")
@_queue
@_name
@click.option("--signing", type=_SIGNING, help="How the next secret is made; default as before.")
@gateway
def rotate_secret(session: Session, queue: str, name: str, signing: str | None) -> None:
    """Sign with another secret, shown once. For a day the one before signs as well."""
    answer = session.client.send(
        "POST", f"{_path(queue, name)}:rotate-secret", body={"signing": signing}
    ).data
    session.out.result(answer, f"Webhook {name} signs with another secret.{_secret(answer)}")


@webhooks.command("enable")
@_queue
@_name
@gateway
def enable_webhook(session: Session, queue: str, name: str) -> None:
    """Switch a webhook on again."""
    answer = session.client.send("POST", f"{_path(queue, name)}:enable")
    session.out.result(answer.data, f"Webhook {name} is on.")


@webhooks.command("attempts")
@_queue
@_name
@gateway
def list_attempts(session: Session, queue: str, name: str) -> None:
    """Show the last requests, the newest first."""
    items = session.client.get(f"{_path(queue, name)}/attempts")["items"]
    rows: list[list[Cell]] = [
        [one["at"], f"{one['topic']}-{one['partition']}", one["offset"], one["delivery_count"],
         one["error"] or one["status"], one["duration_ms"], one["verdict"]]
        for one in items
    ]  # fmt: skip
    session.out.listing(items, ("AT", "PARTITION", "OFFSET", "ATTEMPT", "ANSWER", "MS", "VERDICT"), rows)
