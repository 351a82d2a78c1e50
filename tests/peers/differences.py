"""The differences between Kafka 4.1 and Sluice that are known, each with its reason.

An entry that covers no difference any more fails the test: remove it.
"""

from __future__ import annotations

from tests.peers.differential import Known

KNOWN: tuple[Known, ...] = (
    # --- everywhere ----------------------------------------------------------------------------------------
    Known(
        "*", "*error_message", "not set", "set",
        "Sluice says in words what Kafka leaves to the error code.",
    ),
    Known(
        "*", "*configs[min.insync.replicas].config_source", "3", "5",
        "Kafka stores min.insync.replicas for the cluster when it formats its disk; here 1 is the default.",
    ),
    Known(
        "*", "*configs[min.insync.replicas].synonyms[min.insync.replicas].source", "3", "5",
        "The same.",
    ),
    Known(
        "*", "*configs[min.insync.replicas]*", "present", "absent",
        "The same: there is no value for the cluster, and no second synonym.",
    ),
    Known(
        "describe all brokers", "results[].configs", "absent", "[]",
        "The same.",
    ),
    Known(
        "*", "*configs[file.delete.delay.ms]*value", "60000", "1000",
        "A deleted file is kept for the readers that have it open; here they are done within a second.",
    ),
    # --- topics --------------------------------------------------------------------------------------------
    Known(
        "metadata by *id*", "*", "*", "*",
        "Kafka takes ids from version 12 on, for brokers before it had a bug; Sluice never had it.", (10, 11),
    ),
    Known(
        "metadata with creation", "topics[auto].error_code", "UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE",
        "Both are answered while a topic is created; clients try again after both.",
    ),
    Known(
        "metadata twice", "topics[meta#2]", "absent", "present",
        "A duplicate topic is answered two times.",
    ),
    Known(
        "partitions of *", "*.topic_authorized_operations", "3576", "-2147483648",
        "Nothing may be done with a topic that does not exist.",
    ),
    Known(
        "partitions of a bad name", "topics[a b].error_code", "INVALID_TOPIC_EXCEPTION", "UNKNOWN_TOPIC_OR_PARTITION",
        "A topic of that name does not exist either.",
    ),
    Known(
        "partitions, negative cursor", "*", "*", "*",
        "Kafka refuses the cursor; Sluice begins at the first partition.",
    ),
    Known(
        "elect unknown", "replica_election_results*", "*", "*",
        "Kafka reads an unknown type of election as a preferred one; Sluice refuses it.",
    ),
    Known(
        "alter unknown operation", "responses[configured].error_code", "UNKNOWN_SERVER_ERROR", "INVALID_REQUEST",
        "Kafka fails where Sluice says what is wrong.",
    ),
    # --- produce -------------------------------------------------------------------------------------------
    Known(
        "produce*", "*", "*", "*",
        "Kafka 4 advertises Produce from version 0, for librdkafka, and closes the connection; Sluice serves it.",
        (0, 2),
    ),
    Known(
        "produce: cut", "*.error_code", "INVALID_RECORD", "CORRUPT_MESSAGE",
        "A batch that is longer than its frame was damaged on its way: the client may send it again.",
    ),
    Known(
        "*", "*.partition_responses[0].log_start_offset", "0", "-1",
        "A refused batch is answered with an error alone; no client reads the log start beside it.",
    ),
    Known(
        "sequence: second again", "*.log_append_time_ms", "positive", "-1",
        "A repeated batch is answered as it was the first time; Kafka answers its time even with CreateTime.",
    ),
    Known(
        "sequence: negative epoch", "*.error_code", "INVALID_PRODUCER_EPOCH", "INVALID_RECORD",
        "No producer has such an epoch: the batch is refused before producers are looked up.",
    ),
    # --- fetch and offsets ---------------------------------------------------------------------------------
    Known(
        "fetch*", "*.log_start_offset", "-1", "*",
        "With OFFSET_OUT_OF_RANGE Sluice says where the log starts.",
    ),
    Known(
        "fetch: unknown *", "*.aborted_transactions", "[]", "None",
        "Null and an empty list say the same: none.",
    ),
    Known(
        "fetch: last epoch 9", "*", "*", "*",
        "Only followers say the epoch that they fetched last; Sluice's follow by the epochs of OffsetForLeaderEpoch.",
    ),
    Known(
        "*isolation 9", "*", "*", "*",
        "Kafka fails with UNKNOWN_SERVER_ERROR; Sluice reads all that is not 1 as 0.",
    ),
    Known(
        "session forgets", "session_id", "0", "positive",
        "Kafka ends a session that has no partition left; Sluice keeps it, for the client may add one.",
    ),
    Known(
        "offset, partition twice", "*", "*", "*",
        "Kafka refuses a duplicate partition; Sluice answers two times.",
    ),
    # --- groups --------------------------------------------------------------------------------------------
    Known(
        "sync: *", "error_code", "INCONSISTENT_GROUP_PROTOCOL", "*",
        "The request has no protocol type and name, which version 5 needs; Sluice looks at the member first.", (5, 5),
    ),
    Known(
        "join: *", "generation_id", "-1", "0",
        "Brokers that had version 0 alone answered 0 with an error.", (0, 0),
    ),
    Known(
        "commit unknown partition", "*.error_code", "UNKNOWN_TOPIC_OR_PARTITION", "NONE",
        "Brokers of versions 0 to 2 looked at the topic alone.", (2, 2),
    ),
    Known(
        "fetch*offsets: unknown partition", "*.partitions[7].*", "*", "*",
        "The same: that position was committed.",
    ),
    Known(
        "fetch all offsets", "*.partitions[7]", "absent", "present",
        "The same.",
    ),
    Known(
        "delete offset of committed 7", "*.error_code", "UNKNOWN_TOPIC_OR_PARTITION", "NONE",
        "The same: what was committed can be deleted.",
    ),
    Known(
        "delete twice", "results[no-group#2]", "absent", "present",
        "A duplicate group is answered two times.",
    ),
    # --- the cluster ---------------------------------------------------------------------------------------
    Known(
        "cluster, controllers", "error_code", "MISMATCHED_ENDPOINT_TYPE", "UNSUPPORTED_ENDPOINT_TYPE",
        "Kafka has controllers at another port; Sluice has none.",
    ),
    Known(
        "cluster, *", "endpoint_type", "1", "*",
        "Sluice repeats the type that it refuses.",
    ),
    Known(
        "versions", "*features*", "*", "*",
        "The features of a KRaft cluster are Kafka's own.", (3, 4),
    ),
    # --- frames --------------------------------------------------------------------------------------------
    Known(
        "unknown version", "", "closed", "unreadable",
        "Kafka closes the connection; Sluice answers UNSUPPORTED_VERSION first, so that the client can say why.",
    ),
    Known("unknown API", "", "closed", "unreadable", "The same."),
    Known("negative API", "", "closed", "unreadable", "The same."),
    Known(
        "negative length", "*", "*", "*",
        "Kafka reads any negative length as null; Sluice refuses all but -1.",
    ),
)  # fmt: skip
"""Each for one reason. The order does not count."""
