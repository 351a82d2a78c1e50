"""Admin calls that only one or two clients can say: cluster, disks, producers, appended settings, dry runs."""

from __future__ import annotations

import uuid

import httpx
import pytest
from confluent_kafka import ElectionType, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    AlterConfigOp,
    ResourcePatternFilter,
)
from kafka.admin import ConfigResource as PythonConfigResource
from kafka.admin import ConfigResourceType as PythonResourceType
from kafka.admin import ResourceType as PythonAclType
from kafka.errors import InvalidReplicationAssignmentError, SecurityDisabledError
from kafka.structs import TopicPartition as PythonTopicPartition

from core.errors import ErrorCode
from tests.broker_process import BrokerProcess
from tests.clients.driver import CALL_SECONDS, Message
from tests.clients.drivers.confluent import Confluent
from tests.clients.drivers.kafka_python import KafkaPython
from tests.clients.every_client import GetClient
from tests.clients.wire import NOW, Wire
from tests.core.listeners.kafka.test_configs import ALL_SETTINGS

# A user switches the authorizer on; the client of these tests continues without rules.
BROKER_ENVIRONMENT = {"SLUICE_ALLOW_EVERYONE_IF_NO_ACL_FOUND": "true"}


@pytest.fixture
def confluent(client: GetClient) -> Confluent:
    """librdkafka's admin client."""
    found = client(Confluent)
    assert isinstance(found, Confluent)
    return found


@pytest.fixture
def python(client: GetClient) -> KafkaPython:
    """kafka-python's admin client."""
    found = client(KafkaPython)
    assert isinstance(found, KafkaPython)
    return found


@pytest.fixture
def topic(wire: Wire) -> str:
    """A topic with two partitions and three records, all in the first."""
    name = f"topic-{uuid.uuid4().hex}"
    wire.create_topic(name, partitions=2)
    wire.write(name, "a", "b", "c")
    return name


@pytest.fixture
def cluster_id(broker: BrokerProcess) -> str:
    """The cluster's id, as REST shows it."""
    return str(httpx.get(f"{broker.http}/api/v1/cluster", trust_env=False).json()["cluster_id"])


def test_the_cluster_is_described_alike_to_all(
    confluent: Confluent, python: KafkaPython, broker: BrokerProcess, cluster_id: str
) -> None:
    described = confluent.admin.describe_cluster().result(CALL_SECONDS)
    node = described.nodes[0]
    assert (described.cluster_id, node.id, f"{node.host}:{node.port}") == (cluster_id, 1, broker.kafka)
    assert described.controller.id == 1
    found = python.admin.describe_cluster()
    assert found["cluster_id"] == cluster_id
    assert [(one["host"], one["port"]) for one in found["brokers"]] == [broker.kafka_address]


def test_a_topic_is_described_with_its_id_and_leaders(
    confluent: Confluent, python: KafkaPython, topic: str
) -> None:
    asked = TopicCollection([topic])
    described = confluent.admin.describe_topics(asked)[topic].result(CALL_SECONDS)
    assert [(one.id, one.leader.id, len(one.isr)) for one in described.partitions] == [(0, 1, 1), (1, 1, 1)]
    (found,) = python.admin.describe_topic_partitions([topic])["topics"]
    assert (found["name"], found["error_code"], len(found["partitions"])) == (topic, 0, 2)
    (same,) = python.admin.describe_topics([topic])
    assert str(same["topic_id"]) == str(found["topic_id"])


def test_the_sizes_on_disk_are_told(python: KafkaPython, topic: str) -> None:
    (answer,) = python.admin.describe_log_dirs({topic: [0, 1]})
    (directory,) = answer["log_dirs"]
    assert directory["error_code"] == 0
    (found,) = directory["topics"]
    sizes = {one["partition_index"]: one["partition_size"] for one in found["partitions"]}
    assert sizes[0] > 61
    assert sizes[1] == 0


def test_an_idempotent_producer_is_shown_with_its_last_sequence(python: KafkaPython, wire: Wire) -> None:
    topic = f"topic-{uuid.uuid4().hex}"
    wire.create_topic(topic)
    python.write(topic, 0, [Message(None, b"%d" % i, (), NOW) for i in range(5)])
    asked = PythonTopicPartition(topic, 0)
    state = python.admin.describe_producers([asked])[asked]
    (producer,) = state.active_producers
    assert producer.producer_id >= 0
    assert producer.last_sequence == 4


def test_a_setting_can_be_appended_to_and_reset(
    confluent: Confluent, python: KafkaPython, topic: str
) -> None:
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    confluent.admin.incremental_alter_configs([resource])[resource].result(CALL_SECONDS)
    assert set((python.configs(topic)["cleanup.policy"] or "").split(",")) == {"compact", "delete"}
    change = {"cleanup.policy": (AlterConfigOp.SUBTRACT, "delete")}
    python.admin.alter_configs([PythonConfigResource(PythonResourceType.TOPIC, topic, configs=change)])
    assert python.configs(topic)["cleanup.policy"] == "compact"
    reset = PythonConfigResource(PythonResourceType.TOPIC, topic, configs=["cleanup.policy"])
    python.admin.reset_configs([reset])
    assert python.configs(topic)["cleanup.policy"] == "delete"


def test_a_topic_is_made_with_every_setting_of_kafka(confluent: Confluent, python: KafkaPython) -> None:
    """As Terraform's providers, Ansible and MirrorMaker 2 do: they set values that they have read elsewhere."""
    for admin in (confluent, python):
        name = f"topic-{uuid.uuid4().hex}"
        admin.create_topic(name, 1, ALL_SETTINGS)
        assert confluent.configs(name) == ALL_SETTINGS
        assert python.configs(name) == ALL_SETTINGS


def test_a_setting_of_the_broker_is_changed_while_it_runs(
    confluent: Confluent, python: KafkaPython, topic: str
) -> None:
    name = "log.cleaner.delete.retention.ms"

    def change(operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        confluent.admin.incremental_alter_configs([resource])[resource].result(CALL_SECONDS)

    change(AlterConfigOpType.SET, "123456")
    try:
        assert python.configs(topic)["delete.retention.ms"] == "123456"
        resource = PythonConfigResource(PythonResourceType.BROKER, "1")
        shown = python.admin.describe_configs([resource], config_filter="all")["broker"]["1"][name]
        assert shown["value"] == "123456"
        with pytest.raises(KafkaException, match="Not a number of type LONG"):
            change(AlterConfigOpType.SET, "soon")
    finally:
        change(AlterConfigOpType.DELETE, None)
    assert confluent.configs(topic)["delete.retention.ms"] == "86400000"


def test_a_dry_run_changes_nothing(python: KafkaPython, topic: str) -> None:
    python.admin.create_topics({"only-checked": {"num_partitions": 1}}, validate_only=True)
    python.admin.create_partitions({topic: 9}, validate_only=True)
    resource = PythonConfigResource(PythonResourceType.TOPIC, topic, configs={"retention.ms": "5"})
    python.admin.alter_configs([resource], validate_only=True)
    found = python.topics()
    assert "only-checked" not in found
    assert found[topic] == 2
    assert python.configs(topic)["retention.ms"] != "5"


def test_a_topic_can_be_deleted_by_its_id(python: KafkaPython, topic: str) -> None:
    (described,) = python.admin.describe_topics([topic])
    python.admin.delete_topics([uuid.UUID(str(described["topic_id"]))])
    assert topic not in python.topics()


def test_the_record_with_the_greatest_timestamp_is_found(confluent: Confluent, wire: Wire) -> None:
    topic = f"topic-{uuid.uuid4().hex}"
    wire.create_topic(topic)
    times = [NOW, NOW + 9000, NOW + 1000]
    confluent.write(topic, 0, [Message(None, b"x", (), timestamp) for timestamp in times])
    asked = TopicPartition(topic, 0)
    found = confluent.admin.list_offsets({asked: OffsetSpec.max_timestamp()})[asked].result(CALL_SECONDS)
    assert (found.offset, found.timestamp) == (1, NOW + 9000)


def test_many_topics_are_created_and_deleted_in_one_call(python: KafkaPython) -> None:
    names = [f"many-{number}" for number in range(50)]
    python.admin.create_topics({name: {"num_partitions": 2} for name in names})
    assert {name: python.topics()[name] for name in names} == dict.fromkeys(names, 2)
    answer = python.admin.create_topics({"many-0": {}, "many-new": {}}, raise_errors=False)
    codes = {one["name"]: one["error_code"] for one in answer["topics"]}
    assert codes == {"many-0": ErrorCode.TOPIC_ALREADY_EXISTS, "many-new": 0}
    python.admin.delete_topics([*names, "many-new"])
    assert not set(names) & set(python.topics())


# --- what one broker without security answers as a Kafka of one node does ------------------------------------


def test_the_quorum_is_this_broker(python: KafkaPython) -> None:
    (found,) = python.admin.describe_metadata_quorum()["topics"]
    (partition,) = found["partitions"]
    (voter,) = partition["current_voters"]
    assert (found["topic_name"], partition["leader_id"], voter["replica_id"]) == ("__cluster_metadata", 1, 1)


def test_replicas_stay_where_they_are(python: KafkaPython, topic: str) -> None:
    asked = PythonTopicPartition(topic, 0)
    assert python.admin.alter_partition_reassignments({asked: [1]}) == {asked: None}
    refused = python.admin.alter_partition_reassignments({asked: [1, 2]})
    assert refused == {asked: InvalidReplicationAssignmentError}
    assert python.admin.list_partition_reassignments([asked]) == {}


def test_the_leader_need_not_be_elected(confluent: Confluent, topic: str) -> None:
    asked = TopicPartition(topic, 0)
    done = confluent.admin.elect_leaders(ElectionType.PREFERRED, [asked]).result(CALL_SECONDS)
    assert [error.code() for error in done.values()] == [ErrorCode.ELECTION_NOT_NEEDED]


def test_there_are_no_users_and_no_access_rules(confluent: Confluent, python: KafkaPython) -> None:
    described = confluent.admin.describe_user_scram_credentials(["a"])["a"].exception(CALL_SECONDS)
    assert described.args[0].code() == ErrorCode.RESOURCE_NOT_FOUND
    assert confluent.admin.describe_user_scram_credentials().result(CALL_SECONDS) == {}
    anything = ResourcePatternFilter(PythonAclType.ANY, None, ACLResourcePatternType.ANY)
    with pytest.raises(SecurityDisabledError):
        python.admin.describe_acls(ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, anything))


def test_a_user_is_made_described_and_removed(confluent: Confluent) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    made = confluent.admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("a", info, b"password")]
    )
    assert made["a"].result(CALL_SECONDS) is None
    described = confluent.admin.describe_user_scram_credentials(["a"])["a"].result(CALL_SECONDS)
    assert [(one.mechanism, one.iterations) for one in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    gone = UserScramCredentialDeletion("a", ScramMechanism.SCRAM_SHA_256)
    assert confluent.admin.alter_user_scram_credentials([gone])["a"].result(CALL_SECONDS) is None
    assert confluent.admin.describe_user_scram_credentials().result(CALL_SECONDS) == {}


def test_resources_with_settings_are_listed(python: KafkaPython, topic: str) -> None:
    found = python.admin.list_config_resources()
    assert topic in found["topic"]
    assert found["broker"] == ["1"]


@pytest.mark.parametrize(("timestamp", "offset"), [(-4, 0), (-5, -1)])
def test_all_of_a_log_is_local(python: KafkaPython, topic: str, timestamp: int, offset: int) -> None:
    asked = PythonTopicPartition(topic, 0)
    assert python.admin.list_partition_offsets({asked: timestamp})[asked].offset == offset
