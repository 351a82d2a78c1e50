"""What all commands share: how they end, completion, lists and settings."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from app.__main__ import main
from app.commands.options import Session, TopicName, gateway, partition_list, settings
from tests.app.commands.fake_gateway import FakeGateway, Reply, problem
from tests.app.commands.running import Sluice, run
from tests.broker_process import BrokerProcess


@pytest.mark.parametrize(
    ("text", "numbers"), [(None, None), ("0", [0]), ("2,0", [0, 2]), ("1-3, 3,7", [1, 2, 3, 7]), ("3-1", [])]
)
def test_partitions_are_numbers_and_ranges(text: str | None, numbers: list[int] | None) -> None:
    assert partition_list(text) == numbers


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1,,2", "²", "1-2-3"])
def test_what_is_no_list_of_partitions_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        partition_list(text)


def test_settings_are_pairs() -> None:
    assert settings(("a=1", " b = x=y "), "-c") == {"a": "1", "b": "x=y"}
    with pytest.raises(click.BadParameter, match="NAME=VALUE"):
        settings(("a",), "-c")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 0, ""),
        (KeyError("name"), 1, "in a form that is not known here"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (PermissionError(13, "Permission denied", "secret"), 1, "secret: Permission denied"),
    ],
)
def test_a_command_ends_without_a_traceback(error: BaseException, code: int, said: str) -> None:
    @click.command()
    @gateway
    def broken(session: Session, /) -> None:
        session.out.say("before")
        raise error

    result = CliRunner().invoke(broken, [])
    assert result.exit_code == code
    assert said in result.stderr and "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == (2 if isinstance(error, KeyError) else bool(said))


def test_what_was_printed_before_ctrl_c_is_not_lost() -> None:
    @click.command()
    @gateway
    def stopped(session: Session, /) -> None:
        session.out.say("before")
        raise KeyboardInterrupt

    assert CliRunner().invoke(stopped, []).stdout == "before\n"


def test_the_url_comes_from_the_option_the_environment_or_the_default(fake: FakeGateway) -> None:
    fake.will_answer(*[Reply(200, {"items": [], "next_page_token": None})] * 2)
    run("topics", "list", "--url", fake.url, url="http://127.0.0.1:1")
    run("topics", "list", url=fake.url)
    assert "[default: http://127.0.0.1:8082]" in CliRunner().invoke(main, ["topics", "list", "--help"]).output


def test_a_gateway_that_answers_in_another_shape_is_told(fake: FakeGateway) -> None:
    fake.will_answer(Reply(200, {"things": []}))
    ran = run("topics", "list", url=fake.url, code=1)
    assert "in a form that is not known here" in ran.err and "version" in ran.err


def test_the_shell_completes_topics(
    sluice: Sluice, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("complete-a", "complete-b", "other"):
        sluice("topics", "create", name)
    monkeypatch.setenv("SLUICE_URL", broker.http)
    context = click.Context(main)
    found = TopicName().shell_complete(context, click.Argument(["topic"]), "complete-")
    assert [item.value for item in found] == ["complete-a", "complete-b"]
    monkeypatch.setenv("SLUICE_URL", "http://127.0.0.1:1")
    assert TopicName().shell_complete(context, click.Argument(["topic"]), "") == []


def test_a_hint_does_not_hide_the_refusal_when_the_topics_cannot_be_listed(fake: FakeGateway) -> None:
    refusal = problem(
        404, "unknown-topic-or-partition", "No topic.", kafka_error="UNKNOWN_TOPIC_OR_PARTITION"
    )
    fake.will_answer(refusal, Reply(500, {}))
    assert run("topics", "describe", "x", url=fake.url, code=1).err == "sluice: No topic.\n"
