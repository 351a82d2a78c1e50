"""The brokers of the cluster and what they lead, as `broker.roles`. This process leads and copies nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.client.cluster import ClusterClient
from core.config import Endpoint
from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition
from core.vocabulary.capabilities import unsupported
from core.vocabulary.partition import PartitionInfo
from core.vocabulary.replicas import FollowerFetched, FollowerRead, Placement, Quorum, Role
from core.vocabulary.topic import TopicInfo

_NOT_HERE = (
    "A gateway has no replicas: brokers of the cluster lead and copy its partitions. Use Kafka's own tools."
)


class Roles:
    """What Metadata has told of brokers and leaders."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    @property
    def metadata_leader(self) -> int:
        """See `facade.Roles.metadata_leader`: the controller."""
        return self._cluster.controller_id

    @property
    def alone(self) -> Placement | None:
        """See `facade.Roles.alone`."""
        return None

    def placed(self, topic: TopicInfo, partition: int) -> Placement:
        """See `facade.Roles.placed`."""
        try:
            one = self._cluster.partition(TopicPartition(topic.name, partition))
        except BrokerError:
            return Placement(-1, -1, topic.replicas, ())
        return Placement(one.leader, one.leader_epoch, one.replicas, one.isr)

    def peers(self) -> list[tuple[int, Endpoint]]:
        """See `facade.Roles.peers`: all brokers of the cluster."""
        brokers = self._cluster.brokers
        return [
            (broker_id, Endpoint("kafka", brokers[broker_id].address.host, brokers[broker_id].address.port))
            for broker_id in sorted(brokers)
        ]

    def broker_ids(self) -> list[int]:
        """See `facade.Roles.broker_ids`."""
        return sorted(self._cluster.brokers)

    def is_peer(self, broker_id: int) -> bool:
        """See `facade.Roles.is_peer`: no broker of the cluster takes this process for another broker."""
        return False

    def replicated(self) -> list[TopicPartition]:
        """See `facade.Roles.replicated`: none here."""
        return []

    def leads(self) -> int:
        """See `facade.Roles.leads`."""
        return 0

    def quorum(self) -> Quorum | None:
        """See `facade.Roles.quorum`."""
        return None

    async def set(self, tp: TopicPartition, role: Role, *, unclean: bool = False) -> PartitionInfo:
        """See `facade.Roles.set`."""
        raise unsupported(_NOT_HERE)

    async def lead_everything(self, *, unclean: bool = False) -> dict[TopicPartition, BrokerError | None]:
        """See `facade.Roles.lead_everything`."""
        raise unsupported(_NOT_HERE)

    async def ask_metadata_leader(self, client_id: str | None, key: int, version: int, request: Any) -> Any:
        """See `facade.Roles.ask_metadata_leader`."""
        raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, _NOT_HERE)

    def report_progress(self, tp: TopicPartition, replica: int, offset: int) -> PartitionInfo:
        """See `facade.Roles.report_progress`."""
        raise unsupported(_NOT_HERE)

    async def follower_fetch(
        self, replica: int, reads: Sequence[FollowerRead], *, max_bytes: int, wait_ms: int
    ) -> list[FollowerFetched]:
        """See `facade.Roles.follower_fetch`."""
        raise unsupported(_NOT_HERE)

    def check_peer(self, broker_id: int) -> None:
        """See `facade.Roles.check_peer`."""
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, _NOT_HERE)

    async def exchange(self, data: bytes, asked_by: int | None = None) -> bytes:
        """See `facade.Roles.exchange`."""
        raise ValueError("there are no peers")
