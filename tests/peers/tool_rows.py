"""What Kafka's own tools are asked, in chapters, and what is known of the answers of Kafka and of Sluice.

A row runs against a real Kafka and against Sluice, and the two answers are compared (tests/peers/test_tools.py). The
rows of a chapter run in order, and later rows see what earlier ones did. The table in tests/peers/README.md is
written from these rows: `python -m tests.peers.tool_table`.
"""

from __future__ import annotations

import json
from typing import NamedTuple

_TOOLS = "org.apache.kafka.tools."
#: Script name without its `kafka-` → main class, as the shell scripts of Kafka 4.1 have it.
MAINS = {
    "acls": _TOOLS + "AclCommand",
    "broker-api-versions": _TOOLS + "BrokerApiVersionsCommand",
    "client-metrics": _TOOLS + "ClientMetricsCommand",
    "cluster": _TOOLS + "ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": _TOOLS + "consumer.ConsoleConsumer",
    "console-producer": _TOOLS + "ConsoleProducer",
    "consumer-groups": _TOOLS + "consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": _TOOLS + "ConsumerPerformance",
    "delete-records": _TOOLS + "DeleteRecordsCommand",
    "dump-log": "kafka.tools.DumpLogSegments",
    "e2e-latency": _TOOLS + "EndToEndLatency",
    "features": _TOOLS + "FeatureCommand",
    "get-offsets": _TOOLS + "GetOffsetShell",
    "groups": _TOOLS + "GroupsCommand",
    "leader-election": _TOOLS + "LeaderElectionCommand",
    "log-dirs": _TOOLS + "LogDirsCommand",
    "metadata-quorum": _TOOLS + "MetadataQuorumCommand",
    "producer-perf-test": _TOOLS + "ProducerPerformance",
    "reassign-partitions": _TOOLS + "reassign.ReassignPartitionsCommand",
    "share-groups": _TOOLS + "consumer.group.ShareGroupCommand",
    "streams-groups": _TOOLS + "streams.StreamsGroupCommand",
    "topics": _TOOLS + "TopicCommand",
    "transactions": _TOOLS + "TransactionsCommand",
    "verifiable-consumer": _TOOLS + "VerifiableConsumer",
    "verifiable-producer": _TOOLS + "VerifiableProducer",
}
# These have subcommands; the option comes before them.
OPTION_FIRST = ("features", "metadata-quorum", "transactions")

#: Files that rows name as {files}/NAME.
FILES = {
    "delete.json": json.dumps(
        {"version": 1, "partitions": [{"topic": "tools-records", "partition": 0, "offset": 2}]}
    ),
    "stay.json": json.dumps(
        {"version": 1, "partitions": [{"topic": "tools-moves", "partition": 0, "replicas": [1]}]}
    ),
    "leave.json": json.dumps(
        {"version": 1, "partitions": [{"topic": "tools-moves", "partition": 0, "replicas": [2]}]}
    ),
    "topics.json": json.dumps({"version": 1, "topics": [{"topic": "tools-moves"}]}),
    "elect.json": json.dumps({"partitions": [{"topic": "tools-moves", "partition": 0}]}),
}


class Row(NamedTuple):
    """One command. `line` is script name and arguments, where {host}, {data} and {files} are filled in.

    `how` is "same" (both say the same), "words" (both refuse with the same exceptions, Sluice in its own words) or
    "differs" (for `because`). `says` must stand in both answers, or in Kafka's alone where `sluice` says what ours
    has. `only` keeps the lines of the answers that hold it. `waits` names the work without which ours is not there
    yet: such a row must fail, and loses the mark when it does not.
    """

    line: str
    how: str = "same"
    says: str = ""
    sluice: str = ""
    because: str = ""
    text: str = ""
    only: str = ""
    without: tuple[str, ...] = ()
    waits: str = ""
    ordered: bool = True
    exit: int = 0


OUR_WORDS = "the same refusal in words of our own"


def same(line: str, says: str = "", **more: object) -> Row:
    """Both answer alike."""
    return Row(line, "same", says, **more)  # type: ignore[arg-type]


def words(line: str, says: str, **more: object) -> Row:
    """Both refuse with the same exception."""
    return Row(line, "words", says, because=OUR_WORDS, **more)  # type: ignore[arg-type]


def differs(line: str, says: str, sluice: str, because: str, **more: object) -> Row:
    """The answers differ for a reason."""
    return Row(line, "differs", says, sluice, because, **more)  # type: ignore[arg-type]


# Transactional ids of the other files of tests/peers.
_OF_OTHER_FILES = ("exactly-once", "move-ledger", "client-", "up-test")
# Share groups of the other files.
_SHARE_GROUPS = "share-tools-"
_A = "--topic tools-a"
_R = "--topic tools-records"
_S = "--entity-type topics --entity-name tools-settings"
_B = "--entity-type brokers --entity-name 1"
_C = "--entity-type groups --entity-name tools-configured"
_G = "--group tools-group"
_RESET = f"consumer-groups {_G} --reset-offsets --topic tools-groups"

CHAPTERS: dict[str, list[Row]] = {
    "topics": [
        same(f"topics --create {_A} --partitions 2 --replication-factor 1", "Created topic tools-a."),
        same(f"topics --create {_A}", "Topic 'tools-a' already exists."),
        same(f"topics --create {_A} --if-not-exists"),
        words("topics --create --topic bad/name", "InvalidTopicException"),
        words("topics --create --topic tools-x --config no.such=1", "InvalidConfigurationException"),
        words("topics --create --topic tools-x --replication-factor 3", "InvalidReplicationFactorException"),
        same(
            "topics --create --topic tools-b --config retention.ms=1000000 --config cleanup.policy=compact,delete"
            " --config min.cleanable.dirty.ratio=0.3",
            "Created topic tools-b.",
        ),
        same("topics --create --topic tools-c --replica-assignment 1,1", "Created topic tools-c."),
        same("topics --list", "tools-a", only="tools-a"),
        same(f"topics --describe {_A}", "PartitionCount: 2 ReplicationFactor: 1"),
        same("topics --describe --topic tools-none", "Topic 'tools-none' does not exist as expected"),
        same("topics --describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ", "does not exist as expected"),
        same("topics --describe --under-replicated-partitions"),
        same("topics --describe --unavailable-partitions"),
        same("topics --describe --under-min-isr-partitions"),
        same("topics --describe --at-min-isr-partitions", "Topic: tools-a Partition: 1", only="tools-a"),
        same(f"topics --alter {_A} --partitions 3"),
        words(f"topics --alter {_A} --partitions 2", "InvalidPartitionsException"),
        same("topics --alter --topic tools-none --partitions 2", "does not exist as expected"),
        same("topics --delete --topic tools-c"),
        same("topics --delete --topic tools-c", "does not exist as expected"),
        same("topics --delete --topic tools-c --if-exists"),
    ],
    "topic settings": [
        same("topics --create --topic tools-settings"),
        same(f"configs --describe {_S}", "Dynamic configs for topic tools-settings are:"),
        same(f"configs --alter {_S} --add-config retention.ms=86400000,max.message.bytes=2000000", "Completed"),
        same(f"configs --alter {_S} --add-config cleanup.policy=[compact,delete]", "Completed updating config"),
        same(
            f"configs --describe {_S}",
            "max.message.bytes=2000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000000, "
            "DEFAULT_CONFIG:message.max.bytes=1048588}",
        ),
        same(f"configs --alter {_S} --delete-config retention.ms", "Completed updating config"),
        same(f"configs --alter {_S} --delete-config segment.ms", "Invalid config(s): segment.ms"),
        words(f"configs --alter {_S} --add-config no.such=1", "InvalidConfigurationException"),
        words(f"configs --alter {_S} --add-config retention.ms=soon", "InvalidConfigurationException"),
        words(
            "configs --alter --entity-type topics --entity-name tools-none --add-config retention.ms=1",
            "UnknownTopicOrPartitionException",
        ),
        same("configs --describe --entity-type topics --entity-name tools-none", "doesn't exist"),
        same(
            f"configs --describe {_S} --all", "min.cleanable.dirty.ratio=0.5",
            without=("file.delete.delay.ms",),
        ),
        differs(
            f"configs --describe {_S} --all", "file.delete.delay.ms=60000", "file.delete.delay.ms=1000",
            "no reader needs a deleted file for a minute", only="file.delete.delay.ms",
        ),
        same(f"configs --alter {_S} --add-config max.compaction.lag.ms=60000", "Completed"),
        same(f"configs --alter {_S} --add-config cleanup.policy=[]", "Completed"),
    ],
    "broker settings": [
        same(f"configs --describe {_B}", "Dynamic configs for broker 1 are:"),
        same(f"configs --describe {_B} --all", "log.dirs=DATA", only=" log.dirs="),
        same(f"configs --describe {_B} --all", "num.partitions=1", only=" num.partitions="),
        same(
            f"configs --describe {_B} --all", "auto.create.topics.enable=true sensitive=false",
            only=" auto.create.topics.enable=",
        ),
        same(f"configs --describe {_B} --all", "message.max.bytes", only=" message.max.bytes="),
        differs(
            f"configs --describe {_B} --all", "listeners=PLAINTEXT://HOST,CONTROLLER", "listeners=PLAINTEXT://HOST",
            "no listener is the controller's alone", only=" listeners=",
        ),
        differs(
            f"configs --alter {_B} --add-config log.cleaner.threads=2", "Completed", "InvalidRequestException",
            "one cleaner is enough for one process", exit=1,
        ),
        same(
            "configs --alter --entity-type brokers --entity-default --add-config log.retention.ms=100000000",
            "Completed updating default config",
        ),
        same(
            "configs --describe --entity-type brokers --entity-default", "log.retention.ms=100000000",
            only="log.retention.ms",
        ),
        same(
            "configs --alter --entity-type brokers --entity-default --delete-config log.retention.ms",
            "Completed updating default config",
        ),
        words(f"configs --alter {_B} --add-config broker.id=5", "InvalidRequestException"),
        same("configs --describe --entity-type groups", only="tools-configured"),
        same(
            "configs --describe --entity-type groups --entity-name tools-none", "doesn't exist",
        ),
        same(f"configs --alter {_C} --add-config consumer.session.timeout.ms=50000", "Completed updating config"),
        same(
            f"configs --alter {_C} --add-config consumer.heartbeat.interval.ms=6000,share.auto.offset.reset=earliest",
            "Completed updating config",
        ),
        same(f"configs --describe {_C}", "consumer.session.timeout.ms=50000"),
        same(
            "configs --describe --entity-type groups", "Dynamic configs for group tools-configured are:",
            only="tools-configured",
        ),
        same(f"configs --describe {_C} --all", "=50000", only="consumer.session.timeout.ms"),
        same(f"configs --describe {_C} --all", "=false", only="share.isolation.level"),
        words(f"configs --alter {_C} --add-config consumer.session.timeout.ms=1", "InvalidConfigurationException"),
        words(f"configs --alter {_C} --add-config consumer.session.timeout.ms=soon", "InvalidConfigurationException"),
        words(f"configs --alter {_C} --add-config no.such=1", "InvalidConfigurationException"),
        same(
            f"configs --alter {_C}"
            " --delete-config consumer.session.timeout.ms,consumer.heartbeat.interval.ms,share.auto.offset.reset",
            "Completed updating config",
        ),
        differs(
            "configs --describe --entity-type groups", "Dynamic configs for group tools-configured are:", "",
            "a group whose settings were all removed is not listed any more", only="tools-configured",
        ),
        same("configs --describe --entity-type client-metrics"),
        same("configs --describe --entity-type users"),
        same("configs --describe --entity-type users --entity-name bob"),
        same("configs --describe --entity-type clients"),
        same("configs --describe --entity-type ips"),
        differs(
            "configs --describe --entity-type broker-loggers --entity-name 1", "kafka.server.KafkaApis=INFO",
            "Dynamic configs for broker-logger 1 are:",
            "our loggers have other names",
        ),
        same("client-metrics --list"),
        same("client-metrics --describe"),
        same(
            "configs --alter --entity-type users --entity-name bob"
            " --add-config producer_byte_rate=1000000,request_percentage=50.5",
            "Completed updating config for user bob.",
        ),
        same(
            "configs --alter --entity-type users --entity-name bob --entity-type clients --entity-default"
            " --add-config consumer_byte_rate=2000000",
            "Completed updating config",
        ),
        same(
            "configs --alter --entity-type clients --entity-name tools-app"
            " --add-config controller_mutation_rate=100",
            "Completed updating config for client tools-app.",
        ),
        same(
            "configs --alter --entity-type ips --entity-name 10.9.8.7 --add-config connection_creation_rate=50",
            "Completed updating config for ip 10.9.8.7.",
        ),
        same("configs --describe --entity-type users", "producer_byte_rate=1000000.0"),
        same("configs --describe --entity-type users --entity-name bob", "request_percentage=50.5"),
        same(
            "configs --describe --entity-type users --entity-type clients", "consumer_byte_rate=2000000.0",
        ),
        same("configs --describe --entity-type clients", "controller_mutation_rate=100.0"),
        same("configs --describe --entity-type ips", "connection_creation_rate=50.0"),
        same(
            "configs --alter --entity-type users --entity-name bob"
            " --delete-config producer_byte_rate,request_percentage",
            "Completed updating config for user bob.",
        ),
        same(
            "configs --alter --entity-type users --entity-name bob --entity-type clients --entity-default"
            " --delete-config consumer_byte_rate",
            "Completed updating config",
        ),
        same(
            "configs --alter --entity-type clients --entity-name tools-app"
            " --delete-config controller_mutation_rate",
            "Completed updating config",
        ),
        same(
            "configs --alter --entity-type ips --entity-name 10.9.8.7 --delete-config connection_creation_rate",
            "Completed updating config",
        ),
        same("configs --describe --entity-type ips"),
    ],
}  # fmt: skip

CHAPTERS |= {
    "records": [
        same(f"topics --create {_R}"),
        same(
            f"console-producer {_R} --timeout 10 --sync --property parse.key=true --property key.separator=:",
            text="k1:v1\nk2:v2\nk1:v3\n",
        ),
        same(f"console-producer {_R} --compression-codec gzip", text="a\nb\n"),
        same(
            f"console-producer {_R} --property parse.headers=true --property parse.key=true",
            text="h1:one,h2:two\tkey\tvalue\n",
        ),
        same(
            f"console-consumer {_R} --from-beginning --max-messages 6 --property print.key=true"
            " --property print.partition=true --property print.offset=true --property print.headers=true",
            "Partition:0 Offset:5 h1:one,h2:two key value",
        ),
        same(f"console-consumer {_R} --partition 0 --offset 1 --max-messages 1", "v2"),
        same(f"console-consumer {_R} --from-beginning --max-messages 6 --isolation-level read_committed", "v3"),
        same("console-consumer --include tools-rec.* --from-beginning --max-messages 6", "v3"),
        same(f"get-offsets {_R}", "tools-records:0:6"),
        same("get-offsets --topic-partitions tools-records:0-2 --time earliest", "tools-records:0:0"),
        same(f"get-offsets {_R} --time -1", "tools-records:0:6"),
        same(f"get-offsets {_R} --time max-timestamp", "tools-records:0:5"),
        same(f"get-offsets {_R} --time 0", "tools-records:0:0"),
        same(f"get-offsets {_R} --time -4", "tools-records:0:0"),
        same(f"get-offsets {_R} --time -5"),
        same("get-offsets --topic tools-none", "Could not match any topic-partitions"),
        same("log-dirs --describe --topic-list tools-records", '"partition":"tools-records-0","size":'),
        same("log-dirs --describe --broker-list 7", "The given brokers do not exist from --broker-list: 7"),
        same("delete-records --offset-json-file {files}/delete.json", "tools-records-0 low_watermark: 2"),
        same(f"get-offsets {_R} --time earliest", "tools-records:0:2"),
        same("topics --delete --topic tools-records"),
    ],
    "groups": [
        same("topics --create --topic tools-groups --partitions 2"),
        same("console-producer --topic tools-groups --property parse.key=true", text="a\t1\nb\t2\nc\t3\n"),
        same(f"console-consumer --topic tools-groups {_G} --from-beginning --max-messages 3", "Processed a total"),
        same("consumer-groups --list", "tools-group", only="tools-group"),
        same("consumer-groups --list --state", "Empty", only="tools-group"),
        same("consumer-groups --list --type", "Classic", only="tools-group"),
        same("consumer-groups --list --state Empty", "Empty", only="tools-group"),
        same("consumer-groups --list --type consumer", "GROUP TYPE"),
        same(f"consumer-groups --describe {_G} --state", "tools-group HOST (1) - Empty 0"),
        same(f"consumer-groups --describe {_G} --members", "has no active members"),
        same(f"{_RESET} --to-earliest --dry-run", "tools-group tools-groups 0 0", ordered=False),
        same(f"{_RESET} --to-earliest --execute", "tools-group tools-groups 0 0", ordered=False),
        same(f"consumer-groups --describe {_G}", "tools-group tools-groups 0 0", ordered=False),
        same(f"consumer-groups --describe {_G} --offsets --verbose", "LEADER-EPOCH", ordered=False),
        same(f"{_RESET}:0 --to-offset 0 --execute", "tools-group tools-groups 0 0"),
        same(f"{_RESET} --shift-by 100 --execute", "is higher than latest offset", ordered=False),
        same(
            f"{_RESET} --to-datetime 2020-01-01T00:00:00.000 --execute", "tools-group tools-groups 1 0",
            ordered=False,
        ),
        same(f"{_RESET} --by-duration PT1H --execute", "tools-group tools-groups 1 0", ordered=False),
        same(f"{_RESET} --to-current --execute", "tools-group tools-groups 1 0", ordered=False),
        same(f"{_RESET} --to-latest --export", "No action will be performed", ordered=False),
        same("consumer-groups --group tools-new --reset-offsets --to-earliest --topic tools-groups --execute"),
        same(f"consumer-groups {_G} --delete-offsets --topic tools-groups:0", "Successful"),
        words(f"consumer-groups {_G} --delete-offsets --topic tools-none", "UnknownTopicOrPartitionException"),
        words("consumer-groups --describe --group tools-none", "GroupIdNotFoundException"),
        words("consumer-groups --describe --group tools-none --state", "GroupIdNotFoundException"),
        same("consumer-groups --delete --group tools-new", "was successful"),
        same("consumer-groups --delete --group tools-none", "GroupIdNotFoundException"),
        same("consumer-groups --delete-offsets --group tools-none --topic tools-groups", "does not exist"),
        same("groups --list", "tools-group Classic consumer", only="tools-group"),
        same("groups --list --consumer", "tools-group Classic consumer", only="tools-group"),
        same("groups --list --share", "GROUP TYPE PROTOCOL", without=(_SHARE_GROUPS,)),
        same("share-groups --list", without=(_SHARE_GROUPS,)),
        differs(
            "share-groups --describe --group tools-none", "UnsupportedVersionException", "GroupIdNotFoundException",
            "share groups are a preview in Kafka 4.1, and off",
        ),
        same("streams-groups --list"),
        differs(
            "topics --list", "__consumer_offsets", "", "offsets are in SQLite: there is no such topic", only="__"
        ),
    ],
    # A member to which the broker assigns (KIP-848) is there while these run.
    "live consumer group": [
        same("consumer-groups --describe --group tools-live-848 --state", "uniform Stable 1"),
        same("consumer-groups --describe --group tools-live-848 --state --verbose", "TARGET-ASSIGNMENT-EPOCH"),
        same("consumer-groups --describe --group tools-live-848 --members", "tools-live-848"),
        same("consumer-groups --describe --group tools-live-848 --members --verbose", "tools-live-848:0,1"),
        same("consumer-groups --describe --group tools-live-848", "tools-live-848 tools-live-848 0", ordered=False),
        same("consumer-groups --list --type consumer", "tools-live-848", only="tools-live-848"),
        same("consumer-groups --list --type", "tools-live-848 Consumer", only="tools-live-848"),
        same("consumer-groups --list --state Stable --type consumer", "Stable", only="tools-live-848"),
        same("groups --list --consumer", "tools-live-848 Consumer consumer", only="tools-live-848"),
        same("consumer-groups --delete --group tools-live-848", "GroupNotEmptyException"),
        same(
            "consumer-groups --group tools-live-848 --reset-offsets --to-earliest --topic tools-live-848 --execute",
            "Assignments can only be reset if the group 'tools-live-848' is inactive",
        ),
        same(
            "consumer-groups --group tools-live-848 --delete-offsets --topic tools-live-848",
            "GroupSubscribedToTopic",
        ),
    ],
    # The same group, after its member has left.
    "left consumer group": [
        same("consumer-groups --describe --group tools-live-848 --state", "Empty"),
        same("consumer-groups --describe --group tools-live-848 --members", "has no active members"),
        same(
            "consumer-groups --group tools-live-848 --reset-offsets --to-earliest --topic tools-live-848 --execute",
            "tools-live-848 tools-live-848 0 0", ordered=False,
        ),
        same("consumer-groups --group tools-live-848 --delete-offsets --topic tools-live-848:0", "Successful"),
        same("consumer-groups --delete --group tools-live-848", "was successful"),
        same("consumer-groups --list --type consumer", only="tools-live-848"),
    ],
    # A member of the Java client is there while these run.
    "live group": [
        same("consumer-groups --describe --group tools-live --state", "roundrobin Stable 1"),
        same("consumer-groups --describe --group tools-live --members --verbose", "tools-live:0,1"),
        same("consumer-groups --describe --group tools-live", "tools-live tools-live 0", ordered=False),
        same("consumer-groups --list --state Stable", "tools-live Stable", only="tools-live"),
        same("consumer-groups --delete --group tools-live", "GroupNotEmptyException"),
        same(
            "consumer-groups --group tools-live --reset-offsets --to-earliest --topic tools-live --execute",
            "Assignments can only be reset if the group 'tools-live' is inactive",
        ),
        same("consumer-groups --group tools-live --delete-offsets --topic tools-live", "GroupSubscribedToTopic"),
    ],
    "cluster": [
        same("broker-api-versions", "(id: 1 rack: null isFenced: false)", only="isFenced"),
        same("cluster cluster-id", "Cluster ID: ID"),
        same("cluster list-endpoints", "1 127.0.0.1 PORT null unfenced broker"),
        differs(
            "cluster unregister --id 7", "BrokerIdNotRegisteredException", "does not support", "brokers are in a file"
        ),
        same("features describe", "FinalizedVersionLevel: 1", only="group.version"),
        same("features describe", "FinalizedVersionLevel: 2", only="transaction.version"),
        differs(
            "features describe", "Feature: metadata.version", "", "there is no KRaft", only="metadata.version"
        ),
        same("features upgrade --feature group.version=1", "group.version"),
        words("features downgrade --feature group.version=0 --feature no.such=1", "Could not downgrade", exit=1),
        differs(
            "features upgrade --feature metadata.version=1", "Could not upgrade metadata.version to 1.",
            "Could not upgrade metadata.version to 1.", "there are no feature levels", exit=1,
        ),
        same("metadata-quorum describe --status", "LeaderId: 1", only="LeaderId"),
        same("metadata-quorum describe --replication", "Leader", only=" Leader"),
        same("topics --create --topic tools-moves"),
        same("leader-election --election-type preferred --topic tools-moves --partition 0", "already elected"),
        same("leader-election --election-type preferred --path-to-json-file {files}/elect.json", "already elected"),
        same("leader-election --election-type unclean --topic tools-moves --partition 0", "already elected"),
        words("leader-election --election-type preferred --topic tools-none --partition 0", "Exception"),
        same("reassign-partitions --list", "No partition reassignments found."),
        same(
            "reassign-partitions --generate --broker-list 1 --topics-to-move-json-file {files}/topics.json",
            "Proposed partition reassignment configuration",
        ),
        same(
            "reassign-partitions --verify --reassignment-json-file {files}/stay.json",
            "Reassignment of partition tools-moves-0 is completed.",
        ),
        same(
            "reassign-partitions --execute --reassignment-json-file {files}/stay.json",
            "Successfully started partition reassignment for tools-moves-0",
        ),
        words(
            "reassign-partitions --execute --reassignment-json-file {files}/leave.json",
            "AdminCommandFailedException",
        ),
        same("reassign-partitions --cancel --reassignment-json-file {files}/stay.json", "None of"),
    ],
    "security": [
        words("acls --list", "SecurityDisabledException"),
        words(
            "acls --add --allow-principal User:bob --operation Read --topic t",
            "SecurityDisabledException",
        ),
        words(
            "acls --remove --allow-principal User:bob --operation Read --topic t --force",
            "SecurityDisabledException",
        ),
    ],
    "transactions": [
        same("topics --create --topic tools-tx"),
        same("console-producer --topic tools-tx", text="1\n"),
        # Other files have had transactions on the broker that all share.
        same("transactions list", "TransactionalId Coordinator ProducerId", without=_OF_OTHER_FILES),
        same("transactions describe --transactional-id tools-none", "could not be found"),
        same("transactions describe-producers --topic tools-tx --partition 0", "CurrentTransactionStartOffset"),
        same("transactions find-hanging --broker-id 1", "Topic Partition ProducerId"),
        same("transactions abort --topic tools-tx --partition 0 --start-offset 0", "Could not find any open"),
    ],
    # Of three transactional ids one has committed, one has aborted, and one has a transaction open.
    "live transactions": [
        same("transactions list", "tools-tx-open 1 N Ongoing", only="tools-tx-", ordered=False),
        same("transactions list --duration-filter 600000", only="tools-tx-"),
        same("transactions list --transactional-id-pattern tools-tx-o.*", "tools-tx-open 1 N Ongoing"),
        same("transactions list --transactional-id-pattern tools-tx-[", "failed with an unexpected exception"),
        same("transactions describe --transactional-id tools-tx-open", "Ongoing 900000 TIME N tools-tx-live-0"),
        same("transactions describe --transactional-id tools-tx-committed", "CompleteCommit 900000"),
        same("transactions describe --transactional-id tools-tx-aborted", "CompleteAbort 900000"),
        same(
            "transactions describe-producers --topic tools-tx-live --partition 0",
            "N 0 -1 0 TIME 4", ordered=False,
        ),
        same("transactions find-hanging --broker-id 1 --max-transaction-timeout 0", "Topic Partition ProducerId"),
        same("transactions find-hanging --topic tools-tx-live --max-transaction-timeout 0", "Topic Partition"),
        same("get-offsets --topic tools-tx-live", "tools-tx-live:0:5"),
        same("transactions abort --topic tools-tx-live --partition 0 --start-offset 4"),
        differs(
            "transactions describe-producers --topic tools-tx-live --partition 0", "N 0 0 0 TIME None",
            "1 0 -1 TIME None", "the transaction is aborted in all partitions, and its producer is fenced",
            ordered=False,
        ),
    ],
    "load": [
        same("topics --create --topic tools-load"),
        same(
            "producer-perf-test --topic tools-load --num-records 1000 --record-size 100 --throughput -1"
            " --producer-props bootstrap.servers={host}", "1000 records sent",
        ),
        same("consumer-perf-test --topic tools-load --messages 1000 --timeout 20000", "data.consumed.in.nMsg"),
        same("topics --create --topic tools-verify"),
        same("verifiable-producer --topic tools-verify --max-messages 5", '"sent":5,"acked":5'),
        same(
            "verifiable-consumer --topic tools-verify --max-messages 5 --group-id tools-verify",
            '"name":"records_consumed","count":5',
        ),
        same("topics --create --topic tools-e2e"),
        same("e2e-latency {host} tools-e2e 10 all 100", "Avg latency"),
    ],
    "dump-log": [
        same("topics --create --topic tools-dump"),
        same(
            "console-producer --topic tools-dump --property parse.headers=true"
            " --property parse.key=true",
            text="h1:one\tk1\tv1\nh1:two\tk2\tv2\n",
        ),
        same(
            "console-producer --topic tools-dump --compression-codec zstd", text="a\nb\n",
        ),
        same("dump-log --files {data}/tools-dump-0/00000000000000000000.log --print-data-log --deep-iteration",
             "headerKeys: [h1] key: k1 payload: v1"),
        same("dump-log --files {data}/tools-dump-0/00000000000000000000.log", "isvalid: true"),
    ],
}  # fmt: skip
