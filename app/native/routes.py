"""All URLs of the native surface: one row each.

`lean_routes` and `operation_routes` run below FastAPI: they are hot, or supervisors ask for them every few seconds.
`control_routes` and `problem_routes` are FastAPI's. To call these two loads FastAPI, so the first request for one of
their routes does. Paths are relative to `PREFIX`, but for those of `operation_routes` and `problem_routes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.http.request import Scope
from app.http.route import Body, Handle, Lines, Reply, Route
from app.native.one_record import OneRecord
from app.native.one_shot import OneShotRoutes
from app.native.one_shot_schemas import TransactionCommitted, TransactionToCommit
from app.native.operations import Health, MetricsText, Operations
from app.native.queue_receiving import QueueRoutes
from app.native.queue_routes import queue_routes, receiving_routes
from app.native.record_schemas import (
    CachedHeaders,
    Events,
    KeyHeaders,
    KnownTags,
    MergedPage,
    MergedQuery,
    NdjsonRecords,
    NotStored,
    ProduceHeaders,
    ProduceQuery,
    ReadQuery,
    RecordHeaders,
    RecordPage,
    RecordQuery,
    RecordRead,
    RecordsToWrite,
    RecordsWritten,
    RecordToWrite,
    RecordWritten,
    SomeWritten,
    StreamedRecord,
    StreamHeaders,
    WrittenHeaders,
)
from app.native.records import RecordRoutes
from app.native.refusals_on_writes import ON_WRITES
from app.native.streams.merged import MergedRoutes
from app.native.webhook_routes import webhook_routes
from core.config import Config
from core.security.guarded import Guarded
from core.transactions.long_transactions import CallersTransactions
from core.vocabulary.capabilities import (
    ACLS,
    CONSUMERS,
    FREEZE,
    GROUP_MEMBERS,
    KAFKA_PORT,
    QUOTAS,
    ROLES,
    TAKE_OVER,
    TRANSACTIONS,
    USERS,
)

PREFIX = "/api/v1"
# A queue is a share group: Kafka's name for the same.
ALIASES = {f"{PREFIX}/share-groups": f"{PREFIX}/queues"}
# Statuses of refusals that any route below the prefix may have, and any other route.
ANYWHERE = (400, 401, 421, 422, 431, 500)
ANYWHERE_ELSE = (400, 421, 431, 500)

LeanRoute = Route[Handle]
ControlRoute = Route[Callable[..., Any]]

# Returns the broker as the client of a request may use it.
Acting = Callable[[Scope], Guarded]
# Returns the transactions of several requests as that client may use them.
Transactions = Callable[[Scope], CallersTransactions]


def lean_routes(config: Config, acting: Acting, transactions: Transactions) -> tuple[LeanRoute, ...]:
    """Return the routes of records."""
    records = RecordRoutes(config, acting, transactions)
    one = OneRecord(config, acting)
    return (
        *_writes(records), _one_shot(config, acting), *_reads(records, MergedRoutes(config, acting), one),
        *receiving_routes(QueueRoutes(config, acting)),
    )  # fmt: skip


def _writes(records: RecordRoutes) -> tuple[LeanRoute, ...]:
    return (
        Route(
            "POST", "/topics/{topic}/records", records.produce,
            "produceRecords", "records", "Write records",
            query=ProduceQuery, headers=ProduceHeaders,
            request=Body({
                "application/json": RecordsToWrite | RecordToWrite,
                "application/x-ndjson": NdjsonRecords,
                "application/octet-stream": bytes,
                "*/*": bytes,
            }),
            answers={
                200: Reply(
                    "All records were taken; or the answers to a stream of lines.",
                    RecordsWritten, {"application/x-ndjson": Lines(RecordWritten)}, WrittenHeaders,
                ),
                207: Reply(
                    "Some records were taken; the others have an `error`.", SomeWritten, headers=WrittenHeaders
                ),
            },
            refuses=(404, 406, 409, 429, 504, *ON_WRITES),
        ),
    )  # fmt: skip


def _reads(records: RecordRoutes, merged: MergedRoutes, one: OneRecord) -> tuple[LeanRoute, ...]:
    return (
        Route(
            "GET", "/topics/{topic}/records", merged.read,
            "readTopicRecords", "records", "Read records of all partitions, as a page or a stream",
            query=MergedQuery, headers=StreamHeaders,
            answers={
                200: Reply(
                    "What there is from there on.", MergedPage,
                    {"text/event-stream": Events, "application/x-ndjson": Lines(StreamedRecord)}, NotStored,
                ),
            },
            refuses=(404, 406, 410, 416, 429),
        ),
        Route(
            "GET", "/topics/{topic}/partitions/{partition}/records", records.read,
            "readRecords", "records", "Read records of one partition",
            query=ReadQuery, answers={200: Reply("What there is from there on.", RecordPage)},
            refuses=(404, 410, 416, 429),
        ),
        Route(
            "GET", "/topics/{topic}/partitions/{partition}/records/{offset}", one.read,
            "getRecord", "records", "Read one record",
            query=RecordQuery, headers=KnownTags,
            answers={
                200: Reply("The record.", RecordRead, {"application/octet-stream": bytes}, RecordHeaders),
                204: Reply("The value is null, and its bare bytes were asked for.", headers=RecordHeaders),
                304: Reply("Not modified.", headers=CachedHeaders),
            },
            refuses=(404, 406, 410, 429),
        ),
    )  # fmt: skip


def _one_shot(config: Config, acting: Acting) -> LeanRoute:
    return Route(
        "POST", "/transactions", OneShotRoutes(config, acting).commit,
        "writeTransaction", "transactions", "Commit records, offsets and batches together",
        headers=KeyHeaders, request=TransactionToCommit,
        needs=TRANSACTIONS,
        answers={200: Reply("All of it is committed.", TransactionCommitted, headers=WrittenHeaders)},
        refuses=(404, 409, 429, 504, *ON_WRITES), beside=("GET",),
    )  # fmt: skip


def operation_routes(parts: Operations) -> tuple[LeanRoute, ...]:
    """Return the routes for supervisors and Prometheus. Their paths have no prefix."""
    not_ready = Reply("The broker is starting or stopping.", Health)
    return (
        Route(
            "GET", "/livez", parts.live, "getLiveness", "operations", "Ask whether the process answers",
            answers={200: Health},
        ),
        Route(
            "GET", "/readyz", parts.ready, "getReadiness", "operations", "Ask whether traffic is welcome",
            answers={200: Health, 503: not_ready},
        ),
        Route(
            "GET", "/healthz", parts.health, "getHealth", "operations", "Ask whether traffic is welcome",
            answers={200: Health, 503: not_ready},
        ),
        Route(
            "GET", "/metrics", parts.scrape, "getMetrics", "operations", "Read the metrics",
            answers={200: Reply(
                "Every metric, in the Prometheus text format, or in OpenMetrics if `Accept` asks for it.",
                media={"text/plain": MetricsText, "application/openmetrics-text": str},
            )},
            refuses=(403,),
        ),
    )  # fmt: skip


def problem_routes() -> tuple[ControlRoute, ...]:
    """Return the routes of the pages about types of problems. Their paths have no prefix. Load FastAPI."""
    from app.http import problem_pages

    page = Reply("The page.", media={"text/html": str})
    return (
        Route(
            "GET", "/problems", problem_pages.list_problems,
            "listProblems", "problems", "List the types of problems",
            answers={200: page},
        ),
        Route(
            "GET", "/problems/{slug}", problem_pages.get_problem,
            "getProblem", "problems", "Explain a type of problem",
            answers={200: page}, refuses=(404,),
        ),
    )  # fmt: skip


def control_routes() -> tuple[ControlRoute, ...]:
    """Return the routes of topics, groups, transactions, users, quotas and so on. Load FastAPI."""
    return (
        *_topics(), *_cluster(), *_groups(), *_members(), *_consumers(), *_transactions(), *_participants(),
        *_long_transactions(), *queue_routes(), *webhook_routes(), *_users(), *_acls(), *_quotas(),
    )  # fmt: skip


def _topics() -> tuple[ControlRoute, ...]:
    from app.native import schemas, topics

    return (
        Route(
            "GET", "/topics", topics.list_topics, "listTopics", "topics", "List topics",
            answers={200: schemas.TopicPage, 304: None},
        ),
        Route(
            "PUT", "/topics/{topic}", topics.create_topic, "createTopic", "topics", "Create a topic, or confirm it",
            request=Body({"application/json": schemas.TopicToCreate}, optional=True),
            answers={
                200: Reply("The topic was there with this shape.", schemas.TopicDetail),
                201: Reply("The topic is new.", schemas.TopicDetail),
            },
            refuses=(404, 409, 429, *ON_WRITES),
        ),
        Route(
            "GET", "/topics/{topic}", topics.get_topic, "getTopic", "topics", "Describe a topic",
            answers={200: schemas.TopicDetail}, refuses=(404,),
        ),
        Route(
            "PATCH", "/topics/{topic}", topics.change_topic, "changeTopic", "topics", "Change a topic",
            request=schemas.TopicChange, answers={200: schemas.TopicDetail}, refuses=(404, 409, 412, 429, *ON_WRITES),
        ),
        Route(
            "DELETE", "/topics/{topic}", topics.delete_topic, "deleteTopic", "topics", "Delete a topic",
            answers={204: None}, refuses=(404, 409, 412, 429, *ON_WRITES),
        ),
        Route(
            "POST", "/topics/{topic}:truncate", topics.truncate_topic,
            "truncateTopic", "topics", "Delete the oldest records of a topic",
            request=schemas.Truncation, answers={200: schemas.Truncated}, refuses=(404, 416, *ON_WRITES),
        ),
        Route(
            "GET", "/topics/{topic}/offsets", topics.get_topic_offsets,
            "getTopicOffsets", "topics", "Look up offsets by time",
            answers={200: schemas.TopicOffsets}, refuses=(404,),
        ),
    )  # fmt: skip


def _cluster() -> tuple[ControlRoute, ...]:
    from app.native import cluster, roles, schemas

    return (
        Route(
            "GET", "/", cluster.get_overview, "getOverview", "cluster", "Read versions, limits and links",
            answers={200: schemas.Overview},
        ),
        Route(
            "GET", "/cluster", cluster.get_cluster, "getCluster", "cluster", "Describe the cluster",
            answers={200: schemas.Cluster},
        ),
        Route(
            "GET", "/brokers", cluster.list_brokers, "listBrokers", "cluster", "List the brokers",
            answers={200: schemas.Brokers},
        ),
        Route(
            "GET", "/protocol-versions", cluster.get_protocol_versions,
            "getProtocolVersions", "cluster", "List the APIs of the Kafka protocol and their versions",
            needs=KAFKA_PORT, answers={200: schemas.ProtocolVersions},
        ),
        Route(
            "GET", "/topics/{topic}/partitions/{partition}/role", roles.get_partition_role,
            "getPartitionRole", "cluster", "Describe the role of this broker for a partition",
            answers={200: roles.PartitionRole}, refuses=(404,),
        ),
        Route(
            "POST", "/topics/{topic}/partitions/{partition}:role", roles.set_partition_role,
            "setPartitionRole", "cluster", "Lead a partition, or stop leading it",
            request=roles.RoleWanted, needs=ROLES, answers={200: roles.PartitionRole}, refuses=(404, *ON_WRITES),
        ),
        Route(
            "POST", "/cluster:lead", roles.lead_everything,
            "leadEverything", "cluster", "Lead every partition that this broker has a copy of",
            request=roles.LeadWanted, needs=ROLES, answers={200: roles.Led}, refuses=ON_WRITES,
        ),
        Route(
            "POST", "/cluster:freeze", cluster.freeze, "freezeCluster", "cluster", "Refuse writes, for a move",
            needs=FREEZE, answers={200: schemas.Freezing}, refuses=ON_WRITES,
        ),
        Route(
            "POST", "/cluster:thaw", cluster.thaw, "thawCluster", "cluster", "Take writes again",
            needs=FREEZE, answers={200: schemas.Freezing}, refuses=ON_WRITES,
        ),
    )  # fmt: skip


def _groups() -> tuple[ControlRoute, ...]:
    from app.native import group_schemas as schemas
    from app.native import groups

    return (
        Route(
            "GET", "/groups", groups.list_groups, "listGroups", "groups", "List groups",
            answers={200: schemas.GroupPage}, refuses=(503,),
        ),
        Route(
            "GET", "/groups/{group}", groups.get_group, "getGroup", "groups", "Describe a group",
            answers={200: schemas.GroupDetail}, refuses=(404, 503),
        ),
        Route(
            "PUT", "/groups/{group}", groups.take_over_group,
            "takeOverGroup", "groups", "Take over a group of another broker",
            request=schemas.GroupToTakeOver, needs=TAKE_OVER,
            answers={200: schemas.GroupDetail}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "DELETE", "/groups/{group}", groups.delete_group, "deleteGroup", "groups", "Delete a group",
            answers={204: None}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "GET", "/groups/{group}/offsets", groups.get_group_offsets,
            "getGroupOffsets", "groups", "Read committed offsets",
            answers={200: schemas.GroupPositionList}, refuses=(404, 503),
        ),
        Route(
            "PATCH", "/groups/{group}/offsets", groups.set_group_offsets,
            "setGroupOffsets", "groups", "Commit offsets",
            request=schemas.PositionsToSet, answers={200: schemas.GroupPositionList},
            refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "DELETE", "/groups/{group}/offsets/{topic}", groups.delete_topic_offsets,
            "deleteGroupTopicOffsets", "groups", "Delete the committed offsets of a topic",
            answers={204: None}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "DELETE", "/groups/{group}/offsets/{topic}/{partition}", groups.delete_partition_offset,
            "deleteGroupPartitionOffset", "groups", "Delete the committed offset of a partition",
            answers={204: None}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "POST", "/groups/{group}/offsets:reset", groups.reset_group_offsets,
            "resetGroupOffsets", "groups", "Move the committed offsets of a group without members",
            request=schemas.ResetRequest, answers={200: schemas.ResetResult}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "GET", "/groups/{group}/lag", groups.get_group_lag, "getGroupLag", "groups", "Read the lag of a group",
            answers={200: schemas.GroupLag}, refuses=(404, 503),
        ),
    )  # fmt: skip


def _members() -> tuple[ControlRoute, ...]:
    from app.native import group_schemas as schemas
    from app.native import members

    refuses = (404, 409, *ON_WRITES)
    return (
        Route(
            "POST", "/groups/{group}/members", members.join_group, "joinGroup", "members", "Join a group",
            request=schemas.MemberToJoin,
            needs=GROUP_MEMBERS, answers={
                200: schemas.MemberJoined,
                202: Reply("The other members have not joined yet; ask again.", schemas.MemberJoined),
            },
            refuses=(429, *refuses),
        ),
        Route(
            "POST", "/groups/{group}/members/{member}:sync", members.sync_group,
            "syncGroup", "members", "Get the partitions of a member",
            request=schemas.SyncBody,
            needs=GROUP_MEMBERS, answers={
                200: schemas.MemberSynced,
                202: Reply("The leader has not assigned partitions yet; ask again.", schemas.MemberSynced),
            },
            refuses=(429, *refuses),
        ),
        Route(
            "POST", "/groups/{group}/members/{member}:heartbeat", members.heartbeat,
            "heartbeat", "members", "Send a heartbeat",
            request=schemas.HeartbeatBody, needs=GROUP_MEMBERS, answers={204: None}, refuses=refuses,
        ),
        Route(
            "DELETE", "/groups/{group}/members/{member}", members.leave_group,
            "leaveGroup", "members", "Leave a group",
            needs=GROUP_MEMBERS, answers={204: None}, refuses=refuses,
        ),
    )  # fmt: skip


def _consumers() -> tuple[ControlRoute, ...]:
    from app.native import consumer_schemas as schemas
    from app.native import consumers

    some = Body({"application/json": schemas.SomePartitions}, optional=True)
    return (
        Route(
            "POST", "/groups/{group}/consumers", consumers.create_consumer,
            "createConsumer", "consumers", "Create a consumer",
            request=schemas.ConsumerToCreate, needs=CONSUMERS, answers={201: schemas.ConsumerDetail},
            refuses=(404, 409, 429, *ON_WRITES),
        ),
        Route(
            "GET", "/groups/{group}/consumers", consumers.list_consumers,
            "listConsumers", "consumers", "List consumers",
            needs=CONSUMERS, answers={200: schemas.ConsumerList},
        ),
        Route(
            "GET", "/groups/{group}/consumers/{consumer}", consumers.get_consumer,
            "getConsumer", "consumers", "Describe a consumer",
            needs=CONSUMERS, answers={200: schemas.ConsumerDetail}, refuses=(404,),
        ),
        Route(
            "DELETE", "/groups/{group}/consumers/{consumer}", consumers.delete_consumer,
            "deleteConsumer", "consumers", "Delete a consumer",
            needs=CONSUMERS, answers={204: None}, refuses=(404, *ON_WRITES),
        ),
        Route(
            "POST", "/groups/{group}/consumers/{consumer}:poll", consumers.poll_consumer,
            "pollConsumer", "consumers", "Acknowledge the last batch and get the next one",
            request=Body({"application/json": schemas.Poll}, optional=True), needs=CONSUMERS,
            answers={200: schemas.PolledBatch},
            refuses=(404, 409, 416, 429, *ON_WRITES),
        ),
        Route(
            "POST", "/groups/{group}/consumers/{consumer}:ack", consumers.ack_consumer,
            "ackConsumer", "consumers", "Acknowledge a batch",
            request=schemas.Ack, needs=CONSUMERS, answers={200: schemas.Acked}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "POST", "/groups/{group}/consumers/{consumer}:seek", consumers.seek_consumer,
            "seekConsumer", "consumers", "Seek",
            request=schemas.SeekTo, needs=CONSUMERS, answers={200: schemas.ConsumerDetail},
            refuses=(404, 409, 410, 416, 429, *ON_WRITES),
        ),
        Route(
            "POST", "/groups/{group}/consumers/{consumer}:pause", consumers.pause_consumer,
            "pauseConsumer", "consumers", "Pause partitions",
            request=some, needs=CONSUMERS, answers={200: schemas.ConsumerDetail}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "POST", "/groups/{group}/consumers/{consumer}:resume", consumers.resume_consumer,
            "resumeConsumer", "consumers", "Resume partitions",
            request=some, needs=CONSUMERS, answers={200: schemas.ConsumerDetail}, refuses=(404, 409, *ON_WRITES),
        ),
    )  # fmt: skip


def _participants() -> tuple[ControlRoute, ...]:
    from app.native import participants

    return (
        Route(
            "POST", "/transactions:commit", participants.commit_transactions,
            "commitTransactions", "transactions", "Commit transactions of several producers, and offsets",
            request=participants.TransactionsToCommit, needs=TRANSACTIONS,
            answers={200: participants.TransactionsCommitted},
            refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "POST", "/transactions:abort", participants.abort_transactions,
            "abortTransactions", "transactions", "Abort the open transactions of ids with a prefix",
            request=participants.TransactionsToAbort, needs=TRANSACTIONS,
            answers={200: participants.TransactionsAborted},
            refuses=(409, *ON_WRITES),
        ),
    )  # fmt: skip


def _long_transactions() -> tuple[ControlRoute, ...]:
    from app.native import long_transactions

    return (
        Route(
            "POST", "/transactions:begin", long_transactions.begin_transaction,
            "beginTransaction", "transactions", "Begin a transaction of several requests",
            request=Body({"application/json": long_transactions.TransactionToBegin}, optional=True),
            needs=TRANSACTIONS, answers={201: long_transactions.TransactionBegun},
            refuses=(409, 429, *ON_WRITES),
        ),
        Route(
            "POST", "/transactions/{transaction}:commit", long_transactions.commit_transaction,
            "commitLongTransaction", "transactions", "Commit a transaction of several requests",
            needs=TRANSACTIONS, answers={200: long_transactions.TransactionEnded}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "POST", "/transactions/{transaction}:abort", long_transactions.abort_transaction,
            "abortLongTransaction", "transactions", "Abort a transaction of several requests",
            needs=TRANSACTIONS, answers={200: long_transactions.TransactionEnded}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "POST", "/transactions/{transaction}:extend", long_transactions.extend_transaction,
            "extendTransaction", "transactions", "Keep a transaction of several requests alive",
            needs=TRANSACTIONS, answers={200: long_transactions.TransactionBegun}, refuses=(404, 409, *ON_WRITES),
        ),
    )  # fmt: skip


def _transactions() -> tuple[ControlRoute, ...]:
    from app.native import transactions

    return (
        Route(
            "GET", "/transactions", transactions.list_transactions,
            "listTransactions", "transactions", "List transactional ids",
            needs=TRANSACTIONS, answers={200: transactions.TransactionPage},
        ),
        Route(
            "GET", "/transactions/{transactional_id}", transactions.get_transaction,
            "getTransaction", "transactions", "Describe a transactional id",
            needs=TRANSACTIONS, answers={200: transactions.TransactionDetail}, refuses=(403, 404),
        ),
        Route(
            "DELETE", "/transactions/{transactional_id}", transactions.abort_transaction,
            "abortTransaction", "transactions", "Abort an open transaction",
            needs=TRANSACTIONS, answers={204: None}, refuses=(404, 409, *ON_WRITES),
        ),
    )  # fmt: skip


def _users() -> tuple[ControlRoute, ...]:
    from app.native import stream_tickets, users

    return (
        Route(
            "GET", "/users", users.list_users, "listUsers", "users", "List users",
            needs=USERS, answers={200: users.UserList},
        ),
        Route(
            "POST", "/users", users.create_user, "createUser", "users", "Create a user",
            needs=USERS, request=users.UserToCreate, answers={201: users.UserDetail}, refuses=(409, *ON_WRITES),
        ),
        Route(
            "GET", "/users/{user}", users.get_user, "getUser", "users", "Describe a user",
            needs=USERS, answers={200: users.UserDetail}, refuses=(404,),
        ),
        Route(
            "PUT", "/users/{user}/password", users.set_user_password,
            "setUserPassword", "users", "Change the password of a user",
            needs=USERS, request=users.NewPassword, answers={200: users.UserDetail}, refuses=(404, *ON_WRITES),
        ),
        Route(
            "DELETE", "/users/{user}", users.delete_user, "deleteUser", "users", "Delete a user",
            needs=USERS, answers={204: None}, refuses=(404, *ON_WRITES),
        ),
        Route(
            "GET", "/tokens", users.list_tokens, "listTokens", "users", "List tokens",
            needs=USERS, answers={200: users.TokenList},
        ),
        Route(
            "POST", "/tokens", users.create_token, "createToken", "users", "Create a token",
            needs=USERS, request=users.TokenToCreate, answers={201: users.TokenCreated}, refuses=(404, *ON_WRITES),
        ),
        Route(
            "DELETE", "/tokens/{token}", users.delete_token, "deleteToken", "users", "Delete a token",
            needs=USERS, answers={204: None}, refuses=(404, *ON_WRITES),
        ),
        Route(
            "POST", "/stream-tickets", stream_tickets.create_stream_ticket,
            "createStreamTicket", "users", "Create a ticket that opens one stream of server-sent events",
            request=stream_tickets.StreamToOpen, answers={201: stream_tickets.StreamTicket},
            refuses=(429, *ON_WRITES),
        ),
    )  # fmt: skip


def _quotas() -> tuple[ControlRoute, ...]:
    from app.native import quotas

    return (
        Route(
            "GET", "/quotas", quotas.list_quotas, "listQuotas", "quotas", "List client quotas",
            needs=QUOTAS, answers={200: quotas.QuotaList},
        ),
        Route(
            "PUT", "/quotas", quotas.put_quotas, "putQuotas", "quotas", "Set the quotas of an entity",
            needs=QUOTAS, request=quotas.QuotaToSet, answers={200: quotas.QuotaDetail}, refuses=ON_WRITES,
        ),
        Route(
            "DELETE", "/quotas", quotas.delete_quotas, "deleteQuotas", "quotas", "Delete the quotas of an entity",
            needs=QUOTAS, answers={204: None}, refuses=(404, *ON_WRITES),
        ),
    )  # fmt: skip


def _acls() -> tuple[ControlRoute, ...]:
    from app.native import acls

    return (
        Route(
            "GET", "/acls", acls.list_acls, "listAcls", "acls", "List access rules",
            needs=ACLS, answers={200: acls.AclList}, refuses=(403,),
        ),
        Route(
            "POST", "/acls", acls.create_acls, "createAcls", "acls", "Create access rules",
            needs=ACLS, request=acls.AclsToCreate, answers={201: acls.AclList}, refuses=ON_WRITES,
        ),
        Route(
            "DELETE", "/acls", acls.delete_acls, "deleteAcls", "acls", "Delete access rules",
            needs=ACLS, answers={200: acls.AclsDeleted}, refuses=ON_WRITES,
        ),
    )  # fmt: skip
