"""rskafka, a client in Rust of single partitions, in a program that tests/run.py builds of tests/clients/rust."""

from __future__ import annotations

from tests.clients.driver import Driver, Message
from tests.clients.drivers.child import AdminChild
from tests.conftest import RUST_CLIENT


class RsKafka(AdminChild):
    """One process of the program for all calls. It keeps headers in a map, and sends no settings."""

    name = "rskafka"
    installed_as = "rust client"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    writes_null_headers = False
    reads_null_headers = False
    repeats_headers = False
    creates_with_configs = False
    choose_partition = Driver.choose_partition
    add_partitions = Driver.add_partitions
    configs = Driver.configs
    set_config = Driver.set_config
    groups = Driver.groups
    describe_group = Driver.describe_group
    group_offsets = Driver.group_offsets
    delete_group = Driver.delete_group

    @classmethod
    def sees(cls, message: Message) -> Message:
        """Of several headers with one name the last."""
        return message._replace(headers=tuple(dict(message.headers).items()))

    def program(self) -> tuple[list[str], dict[str, str]]:
        return [str(RUST_CLIENT), self.broker.kafka], {}
