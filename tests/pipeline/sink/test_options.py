"""The options of a write: what is refused, in which words."""

from __future__ import annotations

import pytest

from pipeline.sink.options import ExactlyOnceOptions, write_options
from pipeline.source.options import OptionError
from pipeline.wire.http import HttpApi
from pipeline.wire.security import Login, Security

SERVERS = {"kafka.bootstrap.servers": "one:9092"}
ONCE = {"topic": "t", "delivery": "exactly-once"}


def test_a_write_is_at_least_once_with_marks_unless_it_says_otherwise() -> None:
    options = write_options({**SERVERS, "topic": "t"})
    assert (options.topic, options.codec, options.delivery, options.marks) == ("t", 0, "at-least-once", True)
    options = write_options({**SERVERS, "MARKS": "false", "kafka.compression.type": "zstd"})
    assert (options.topic, options.codec, options.marks) == (None, 4, False)


def test_exactly_once_asks_the_http_api_of_the_first_server_unless_it_is_told_another() -> None:
    told = write_options({**SERVERS, **ONCE}).exactly_once
    assert told == ExactlyOnceOptions(HttpApi("http://one:8082"), "t", 900_000)
    named = {"httpUrl": "https://[::1]:1/sluice/", "txnAppId": "nightly", "txnVersion": "7"}
    told = write_options({**SERVERS, **ONCE, **named, "kafka.transaction.timeout.ms": "60000"}).exactly_once
    assert told == ExactlyOnceOptions(HttpApi("https://[::1]:1/sluice"), "t", 60_000, "nightly", 7)


def test_a_write_logs_in_as_a_read_does() -> None:
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    options = write_options({**SERVERS, **login, "kafka.sasl.password.file": "/password"})
    assert options.settings.security == Security(None, Login("PLAIN", "alice", password_file="/password"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"delivery": "exactly-once"}, "delivery=exactly-once writes to one topic: name it"),
        ({"httpUrl": "http://one:8082"}, "httpUrl is for delivery=exactly-once alone"),
        ({**ONCE, "httpUrl": "one:8082"}, "httpUrl must be like http://127.0.0.1:8082, not 'one:8082'"),
        ({**ONCE, "httpUrl": "http://one:eighty"}, "httpUrl must be like"),
        ({**ONCE, "httpUrl": "http://alice:secret@one"}, "httpUrl takes no user"),
        ({**ONCE, "kafka.security.protocol": "SSL"}, "needs httpUrl.*with a login or TLS"),
        ({**ONCE, "txnAppId": "nightly"}, "txnAppId and txnVersion are given together"),
        ({**ONCE, "txnAppId": "a/b", "txnVersion": "1"}, "txnAppId must have 1 to 200 characters and no '/'"),
        ({**ONCE, "txnAppId": "a", "txnVersion": "-1"}, "txnVersion must be at least 0"),
        ({**ONCE, "kafka.transaction.timeout.ms": "0"}, "kafka.transaction.timeout.ms must be at least 1"),
        ({"delivery": "perhaps"}, "delivery must be at-least-once or exactly-once, not 'perhaps'"),
        ({"kafka.acks": "1"}, "kafka.acks must be all"),
        ({"recordsPerSecond": "0"}, "recordsPerSecond must be above 0, not 0"),
        ({"recordsPerSecond": "some"}, "recordsPerSecond must be a number, not 'some'"),
        ({"topik": "t"}, "unknown option 'topik'"),
        ({"kafka.compression.type": "lzma"}, "kafka.compression.type must be none or gzip"),
        ({"kafka.bootstrap.servers": "nowhere"}, "'nowhere' is no host:port"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol must be plaintext or ssl"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        write_options({**SERVERS, **options})
