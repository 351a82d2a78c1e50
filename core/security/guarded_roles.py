"""`Facade.roles` for one caller: leaders, followers and the other brokers, with the rights that each call needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core import facade
from core.config import Endpoint
from core.errors import BrokerError
from core.security.acl import Operation, ResourceType
from core.security.authorizer import Rights
from core.types import TopicPartition
from core.vocabulary.partition import PartitionInfo
from core.vocabulary.replicas import FollowerFetched, FollowerRead, Placement, Quorum, Role
from core.vocabulary.topic import TopicInfo

_TOPIC, _CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
_READ, _DESCRIBE = Operation.READ, Operation.DESCRIBE


class GuardedRoles:
    """`Facade.roles` for one caller. Metadata has the leaders of the topics that the caller may describe."""

    def __init__(self, broker: facade.Facade, rights: Rights, peer: int | None = None) -> None:
        self._broker = broker
        self._rights = rights
        self._peer = peer

    @property
    def metadata_leader(self) -> int:
        """See `Roles.metadata_leader`."""
        return self._broker.roles.metadata_leader

    @property
    def alone(self) -> Placement | None:
        """See `Roles.alone`."""
        return self._broker.roles.alone

    async def set(self, tp: TopicPartition, role: Role, *, unclean: bool = False) -> PartitionInfo:
        """See `Roles.set`: needs ALTER on the cluster."""
        self._rights.require(Operation.ALTER, _CLUSTER)
        changing = self._broker.roles.set(tp, role, unclean=unclean)
        return await self._rights.noted(f"SET_ROLE {role}", f"TOPIC:{tp}", changing)

    def placed(self, topic: TopicInfo, partition: int) -> Placement:
        """See `Roles.placed`. The caller has got the topic from a call that needed a right."""
        return self._broker.roles.placed(topic, partition)

    def peers(self) -> list[tuple[int, Endpoint]]:
        """See `Roles.peers`."""
        return self._broker.roles.peers()

    def broker_ids(self) -> list[int]:
        """See `Roles.broker_ids`."""
        return self._broker.roles.broker_ids()

    def is_peer(self, broker_id: int) -> bool:
        """See `Roles.is_peer`."""
        return self._broker.roles.is_peer(broker_id)

    def replicated(self) -> list[TopicPartition]:
        """See `Roles.replicated`: needs ALTER on the cluster, as the elections that it is for."""
        self._rights.require(Operation.ALTER, _CLUSTER)
        return self._broker.roles.replicated()

    def leads(self) -> int:
        """See `Roles.leads`."""
        return self._broker.roles.leads()

    def quorum(self) -> Quorum | None:
        """See `Roles.quorum`: needs DESCRIBE on the cluster."""
        self._rights.require(_DESCRIBE, _CLUSTER)
        return self._broker.roles.quorum()

    async def ask_metadata_leader(self, client_id: str | None, key: int, version: int, request: Any) -> Any:
        """See `Roles.ask_metadata_leader`. The request that is forwarded has been checked here."""
        return await self._broker.roles.ask_metadata_leader(client_id, key, version, request)

    async def lead_everything(self, *, unclean: bool = False) -> dict[TopicPartition, BrokerError | None]:
        """See `Roles.lead_everything`: needs ALTER on the cluster."""
        self._rights.require(Operation.ALTER, _CLUSTER)
        changing = self._broker.roles.lead_everything(unclean=unclean)
        return await self._rights.noted("LEAD_EVERYTHING", "CLUSTER:kafka-cluster", changing)

    def report_progress(self, tp: TopicPartition, replica: int, offset: int) -> PartitionInfo:
        """See `Roles.report_progress`: needs CLUSTER_ACTION, and `check_peer`."""
        self.check_peer(replica)
        self._rights.require(Operation.CLUSTER_ACTION, _CLUSTER)
        return self._broker.roles.report_progress(tp, replica, offset)

    async def follower_fetch(
        self, replica: int, reads: Sequence[FollowerRead], *, max_bytes: int, wait_ms: int
    ) -> list[FollowerFetched]:
        """See `Roles.follower_fetch`: needs `check_peer`, and CLUSTER_ACTION.

        Without the latter each read has TOPIC_AUTHORIZATION_FAILED.
        """
        self.check_peer(replica)
        if not self._rights.may(Operation.CLUSTER_ACTION, _CLUSTER):
            return [FollowerFetched(None, self._rights.refusal(_READ, _TOPIC, "")) for _ in reads]
        return await self._broker.roles.follower_fetch(replica, reads, max_bytes=max_bytes, wait_ms=wait_ms)

    def check_peer(self, broker_id: int) -> None:
        """See `Roles.check_peer`: where brokers must prove their number, not even a super user may act as one."""
        proven = self._peer == broker_id if self._peer is not None else not self._authenticates
        if not proven:
            raise self._rights.refusal(Operation.CLUSTER_ACTION, _CLUSTER)

    @property
    def _authenticates(self) -> bool:
        return self._broker.config.peers_authenticate

    async def exchange(self, data: bytes, asked_by: int | None = None) -> bytes:
        """See `Roles.exchange`: needs CLUSTER_ACTION, and a proven broker where brokers must prove it."""
        if self._peer is None and self._authenticates:
            raise self._rights.refusal(Operation.CLUSTER_ACTION, _CLUSTER)
        self._rights.require(Operation.CLUSTER_ACTION, _CLUSTER)
        return await self._broker.roles.exchange(data, self._peer if self._peer is not None else asked_by)
