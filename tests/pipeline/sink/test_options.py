"""The options of a write: what is refused, in which words."""

from __future__ import annotations

import pytest

from pipeline.sink.options import write_options
from pipeline.source.options import OptionError
from pipeline.wire.security import Login, Security

SERVERS = {"kafka.bootstrap.servers": "one:9092"}


def test_a_write_is_at_least_once_with_marks_unless_it_says_otherwise() -> None:
    options = write_options({**SERVERS, "topic": "t"})
    assert (options.topic, options.codec, options.delivery, options.marks) == ("t", 0, "at-least-once", True)
    options = write_options({**SERVERS, "MARKS": "false", "kafka.compression.type": "zstd"})
    assert (options.topic, options.codec, options.marks) == (None, 4, False)


def test_a_write_logs_in_as_a_read_does() -> None:
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    options = write_options({**SERVERS, **login, "kafka.sasl.password.file": "/password"})
    assert options.settings.security == Security(None, Login("PLAIN", "alice", password_file="/password"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"delivery": "exactly-once"}, "delivery=exactly-once needs transactions"),
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
