"""The table of APIs that the codec can read and write, with their versions, and the way to their messages.

The Kafka listener decides which of them are served. A message module is imported when its API is first used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import cast

from msgspec import Struct

NEVER_FLEXIBLE = 32_767


@dataclass(frozen=True)
class Api:
    """One API: its key, Kafka's name for it, and the versions known (both ends included).

    From `flexible_from` on, lengths are compact and structs end in tagged fields (KIP-482). `current_from` is the
    first version that Kafka 4 still serves (KIP-896): those before it are called deprecated where one can.
    """

    key: int
    name: str
    max_version: int
    flexible_from: int = NEVER_FLEXIBLE
    min_version: int = 0
    current_from: int = 0

    def is_flexible(self, version: int) -> bool:
        """Whether this version uses compact lengths and tagged fields."""
        return version >= self.flexible_from

    def has(self, version: int) -> bool:
        """Whether the codec knows this version."""
        return self.min_version <= version <= self.max_version

    @cached_property
    def request_type(self) -> type[Struct]:
        """The class of the request."""
        return self._load("Request")

    @cached_property
    def response_type(self) -> type[Struct]:
        """The class of the response."""
        return self._load("Response")

    @property
    def message_file(self) -> str:
        """The name of the file in `core.protocol.messages`, without its suffix."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()

    def _load(self, side: str) -> type[Struct]:
        module = import_module(f"core.protocol.messages.{self.message_file}")
        return cast("type[Struct]", getattr(module, self.name + side))


_TABLE = (
    Api(0, "Produce", 13, flexible_from=9, current_from=3),
    Api(1, "Fetch", 18, flexible_from=12, current_from=4),
    Api(2, "ListOffsets", 11, flexible_from=6, current_from=1),
    Api(3, "Metadata", 13, flexible_from=9),
    Api(8, "OffsetCommit", 10, flexible_from=8, current_from=2),
    Api(9, "OffsetFetch", 10, flexible_from=6, current_from=1),
    Api(10, "FindCoordinator", 6, flexible_from=3),
    Api(11, "JoinGroup", 9, flexible_from=6, current_from=2),
    Api(12, "Heartbeat", 4, flexible_from=4),
    Api(13, "LeaveGroup", 5, flexible_from=4),
    Api(14, "SyncGroup", 5, flexible_from=4),
    Api(15, "DescribeGroups", 6, flexible_from=5),
    Api(16, "ListGroups", 5, flexible_from=3),
    Api(17, "SaslHandshake", 1),
    Api(18, "ApiVersions", 4, flexible_from=3),
    Api(19, "CreateTopics", 7, flexible_from=5, current_from=2),
    Api(20, "DeleteTopics", 6, flexible_from=4, current_from=1),
    Api(21, "DeleteRecords", 2, flexible_from=2),
    Api(22, "InitProducerId", 5, flexible_from=2),
    Api(23, "OffsetForLeaderEpoch", 4, flexible_from=4, current_from=2),
    Api(24, "AddPartitionsToTxn", 5, flexible_from=3),
    Api(25, "AddOffsetsToTxn", 4, flexible_from=3),
    Api(26, "EndTxn", 5, flexible_from=3),
    Api(27, "WriteTxnMarkers", 2, flexible_from=1, current_from=1),
    Api(28, "TxnOffsetCommit", 5, flexible_from=3),
    Api(29, "DescribeAcls", 3, flexible_from=2, current_from=1),
    Api(30, "CreateAcls", 3, flexible_from=2, current_from=1),
    Api(31, "DeleteAcls", 3, flexible_from=2, current_from=1),
    Api(32, "DescribeConfigs", 4, flexible_from=4, current_from=1),
    Api(33, "AlterConfigs", 2, flexible_from=2),
    Api(34, "AlterReplicaLogDirs", 2, flexible_from=2, current_from=1),
    Api(35, "DescribeLogDirs", 5, flexible_from=2, current_from=1),
    Api(36, "SaslAuthenticate", 2, flexible_from=2),
    Api(37, "CreatePartitions", 3, flexible_from=2),
    Api(42, "DeleteGroups", 2, flexible_from=2),
    Api(43, "ElectLeaders", 2, flexible_from=2),
    Api(44, "IncrementalAlterConfigs", 1, flexible_from=1),
    Api(45, "AlterPartitionReassignments", 1, flexible_from=0),
    Api(46, "ListPartitionReassignments", 0, flexible_from=0),
    Api(47, "OffsetDelete", 0),
    Api(48, "DescribeClientQuotas", 1, flexible_from=1),
    Api(49, "AlterClientQuotas", 1, flexible_from=1),
    Api(50, "DescribeUserScramCredentials", 0, flexible_from=0),
    Api(51, "AlterUserScramCredentials", 0, flexible_from=0),
    Api(55, "DescribeQuorum", 2, flexible_from=0),
    Api(57, "UpdateFeatures", 2, flexible_from=0),
    Api(60, "DescribeCluster", 2, flexible_from=0),
    Api(61, "DescribeProducers", 0, flexible_from=0),
    Api(65, "DescribeTransactions", 0, flexible_from=0),
    Api(66, "ListTransactions", 2, flexible_from=0),
    Api(68, "ConsumerGroupHeartbeat", 1, flexible_from=0),
    Api(69, "ConsumerGroupDescribe", 1, flexible_from=0),
    Api(74, "ListConfigResources", 1, flexible_from=0),
    Api(75, "DescribeTopicPartitions", 0, flexible_from=0),
    Api(76, "ShareGroupHeartbeat", 1, flexible_from=0, min_version=1),
    Api(77, "ShareGroupDescribe", 1, flexible_from=0, min_version=1),
    Api(78, "ShareFetch", 2, flexible_from=0, min_version=1),
    Api(79, "ShareAcknowledge", 2, flexible_from=0, min_version=1),
    Api(90, "DescribeShareGroupOffsets", 1, flexible_from=0),
    Api(91, "AlterShareGroupOffsets", 0, flexible_from=0),
    Api(92, "DeleteShareGroupOffsets", 0, flexible_from=0),
)

APIS: dict[int, Api] = {api.key: api for api in _TABLE}
"""Every API that the codec knows, by key."""

FETCH = 1
"""The key of Fetch."""

ALTER_USER_SCRAM_CREDENTIALS = 51
"""The key of AlterUserScramCredentials, by which a user may delete itself."""

EXCHANGE_KEY = 20_481
"""The key under which brokers of a cluster ask each other about roles; not Kafka's, and no message of this codec."""

API_VERSIONS = 18
"""The key of ApiVersions, which has its own rules for the response header and for unknown versions."""
