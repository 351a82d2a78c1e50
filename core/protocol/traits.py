"""What a version means beyond its layout: the one table of such facts, so that no handler asks for a version."""

from __future__ import annotations

# The record format ("magic") of the first versions; all later ones carry 2.
_PRODUCE_MAGIC = (0, 0, 1)
_FETCH_MAGIC = (0, 0, 1, 1)
_NEWEST_MAGIC = 2
_FIRST_ZSTD = {0: 7, 1: 10}
_FIRST_TOPIC_IDS = {0: 13, 1: 13, 8: 10, 9: 10}
# Timestamps of ListOffsets with a meaning of their own, and the first version that knows them: the greatest timestamp
# (KIP-734), the earliest local and the latest tiered offset (KIP-405, KIP-1005), the earliest one that waits to be
# uploaded (KIP-1023). -1 and -2 are older.
_FIRST_SPECIAL_TIMES = {-1: 0, -2: 0, -3: 7, -4: 8, -5: 9, -6: 11}

# Fetch, ListOffsets (KIP-98).
_FIRST_ISOLATION = {1: 4, 2: 2}
# PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH (KIP-588).
_FIRST_FENCED = {22: 4, 24: 2, 25: 2, 26: 2}
# CreateTopics, DeleteTopics, CreatePartitions (KIP-599).
_FIRST_STRICT_MUTATIONS = {19: 6, 20: 5, 37: 3}


def produce_magic(version: int) -> int:
    """The newest record format that a Produce request of this version may carry."""
    return _PRODUCE_MAGIC[version] if version < len(_PRODUCE_MAGIC) else _NEWEST_MAGIC


def fetch_magic(version: int) -> int:
    """The newest record format that the client of a Fetch of this version understands."""
    return _FETCH_MAGIC[version] if version < len(_FETCH_MAGIC) else _NEWEST_MAGIC


def fetch_cuts_every_partition(version: int) -> bool:
    """Whether each partition of a Fetch has its own limit alone, at which its messages are cut; later, one for
    all, and the first batch of the answer is sent whole, however large (KIP-74)."""
    return version < 3


def metadata_empty_means_all(version: int) -> bool:
    """Whether an empty list of topics asks for all of them; later versions say null for that."""
    return version == 0


def metadata_may_leave_names_out(version: int) -> bool:
    """Whether an answer of Metadata may name a topic by its id alone."""
    return version >= 12


def names_topics_by_id(key: int, version: int) -> bool:
    """Whether Produce (0), Fetch (1), OffsetCommit (8) and OffsetFetch (9) of this version name topics by UUID
    (KIP-516, KIP-848)."""
    return version >= _FIRST_TOPIC_IDS[key]


def knows_isolation(key: int, version: int) -> bool:
    """Whether a Fetch (1) or ListOffsets (2) of this version has an isolation level (KIP-98)."""
    return version >= _FIRST_ISOLATION[key]


def list_offsets_old_style(version: int) -> bool:
    """Whether ListOffsets answers a list of segment offsets, newest first."""
    return version == 0


def list_offsets_knows(version: int, timestamp: int) -> bool:
    """Whether a timestamp has a meaning in ListOffsets of this version."""
    return timestamp >= 0 or version >= _FIRST_SPECIAL_TIMES.get(timestamp, version + 1)


def api_versions_names_software(version: int) -> bool:
    """Whether ApiVersions carries the name and version of the client's software (KIP-511)."""
    return version >= 3


def join_gives_the_id_first(version: int) -> bool:
    """Whether JoinGroup answers a new member MEMBER_ID_REQUIRED and is repeated with the id (KIP-394)."""
    return version >= 4


def join_may_skip_assignment(version: int) -> bool:
    """Whether the client understands that its leader need not assign (KIP-814)."""
    return version >= 9


def refused_join_protocol(version: int) -> str | None:
    """The protocol's name in a refused JoinGroup: null where it may be."""
    return None if version >= 7 else ""


def refused_join_generation(version: int) -> int:
    """The generation in a refused JoinGroup; brokers that had version 0 alone said 0."""
    return -1 if version > 0 else 0


def heartbeat_is_refused_before_sync(version: int) -> bool:
    """Return whether a heartbeat between join and sync gets REBALANCE_IN_PROGRESS, as clients of 0.9 expect."""
    return version == 0


def leave_names_many(version: int) -> bool:
    """Whether LeaveGroup carries a list of members, and answers for each (KIP-345)."""
    return version >= 3


def commit_takes_any_partition(version: int) -> bool:
    """Whether OffsetCommit takes partitions that an existing topic does not have, as old brokers did."""
    return version <= 2


def commit_knows_missing_groups(version: int) -> bool:
    """Whether OffsetCommit says GROUP_ID_NOT_FOUND; before it was ILLEGAL_GENERATION (KIP-848)."""
    return version >= 9


def commit_has_member_epochs(version: int) -> bool:
    """Whether OffsetCommit may be sent by members of the consumer protocol (KIP-848)."""
    return version >= 9


def heartbeat_has_its_member_id(version: int) -> bool:
    """Whether clients of this version of ConsumerGroupHeartbeat make their member id themselves (KIP-1082)."""
    return version >= 1


def txn_commit_begins_transaction(version: int) -> bool:
    """Whether TxnOffsetCommit itself adds the group to the transaction; before, AddOffsetsToTxn did (KIP-890)."""
    return version >= 5


def txn_commit_knows_loading(version: int) -> bool:
    """Whether clients of this version of TxnOffsetCommit survive COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
    return version >= 2


def offsets_of_zookeeper(version: int) -> bool:
    """Whether OffsetCommit and OffsetFetch of this version mean the offsets that stood in ZooKeeper."""
    return version == 0


def offset_fetch_has_one_error(version: int) -> bool:
    """Whether OffsetFetch has an error of its own; before, each partition says it (KIP-98)."""
    return version >= 2


def describe_knows_missing_groups(version: int) -> bool:
    """Whether DescribeGroups says GROUP_ID_NOT_FOUND; before, a missing group was a dead one (KIP-1043)."""
    return version >= 6


def lists_client_metrics_alone(version: int) -> bool:
    """Whether ListConfigResources is still ListClientMetricsResources, without types (KIP-714, KIP-1142)."""
    return version == 0


def produce_begins_transactions(version: int) -> bool:
    """Whether a first Produce opens its transaction, without AddPartitionsToTxn before it (KIP-890)."""
    return version >= 12


def produce_may_ask_to_abort(version: int) -> bool:
    """Whether a client knows TRANSACTION_ABORTABLE, after which it aborts and continues (KIP-890)."""
    return version >= 11


def end_of_transaction_raises_the_epoch(version: int) -> bool:
    """Whether EndTxn raises the producer's epoch and answers what comes next (KIP-890)."""
    return version >= 5


def transaction_errors_know_fencing(key: int, version: int) -> bool:
    """Whether a client of InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26) knows
    PRODUCER_FENCED; before, it is INVALID_PRODUCER_EPOCH (KIP-588)."""
    return version >= _FIRST_FENCED[key]


def knows_zstd(key: int, version: int) -> bool:
    """Whether clients that speak Produce (0) or Fetch (1) of this version know zstd (KIP-110)."""
    return version >= _FIRST_ZSTD[key]


def sasl_tokens_are_framed(version: int) -> bool:
    """Whether SaslAuthenticate requests follow a SaslHandshake of this version; raw frames if not (KIP-152)."""
    return version >= 1


def refuses_mutations_beyond_quota(key: int, version: int) -> bool:
    """Whether this version knows THROTTLING_QUOTA_EXCEEDED; for earlier ones the change is made (KIP-599)."""
    return version >= _FIRST_STRICT_MUTATIONS[key]


def newest_by_name(key: int) -> int | None:
    """Return the last version of an API that names topics by their names; None if all versions do."""
    first = _FIRST_TOPIC_IDS.get(key)
    return None if first is None else first - 1
