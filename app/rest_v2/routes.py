"""All URLs of the REST Proxy v2 surface: one row each."""

from __future__ import annotations

from collections.abc import Callable

from app.http.parameters import RequestIdHeader
from app.http.request import Scope
from app.http.route import Body, Handle, Reply, Route
from app.rest_v2.consumers import ConsumerRoutes, Instances
from app.rest_v2.dialect import Dialect
from app.rest_v2.offsets import OffsetRoutes
from app.rest_v2.produce import ProduceRoutes
from app.rest_v2.records import PartitionReadRoutes
from app.rest_v2.schemas import (
    BinaryProduceRequest,
    BrokerIds,
    CommitOffsets,
    CommittedOffsets,
    ConsumerRecord,
    CreateInstance,
    Health,
    InstanceCreated,
    NothingMore,
    OffsetsQuery,
    PartitionMetadata,
    PartitionOffsets,
    Partitions,
    PollQuery,
    ProduceRequest,
    ProduceResponse,
    ReadQuery,
    Root,
    Seek,
    Subscribe,
    TextProduceRequest,
    TopicMetadata,
    TopicNames,
    Topics,
)
from app.rest_v2.topics import TopicRoutes
from core.clock import Clock
from core.config import Config
from core.facade import Facade
from core.vocabulary.capabilities import CONSUMERS

V2 = "application/vnd.kafka.v2+json"
JSON_RECORDS, BINARY_RECORDS, TEXT_RECORDS = (
    f"application/vnd.kafka.{name}.v2+json" for name in ("json", "binary", "text")
)
# Statuses of refusals that any route may have; that any route with a body may have; that deletions may have.
ANYWHERE = (400, 401, 406, 421, 431, 500)
ON_WRITES = (403, 408, 413, 415, 422, 503, 507)
ON_DELETIONS = (403, 404, 409, 503, 507)
TAG = "rest-proxy"

V2Route = Route[Handle]
_WRITTEN = Body(
    {JSON_RECORDS: ProduceRequest, BINARY_RECORDS: BinaryProduceRequest, TEXT_RECORDS: TextProduceRequest}
)
_READ = Reply("Done.", media=dict.fromkeys(
    (JSON_RECORDS, BINARY_RECORDS, TEXT_RECORDS, "application/json"), list[ConsumerRecord]
))  # fmt: skip


def v2_routes(
    config: Config, clock: Clock, dialect: Dialect, acting: Callable[[Scope], Facade]
) -> tuple[V2Route, ...]:
    """Return all routes, over one broker. `/_health` is a route of some dialects only."""
    topics = TopicRoutes(config, clock, acting)
    instances = Instances(config, dialect, acting)
    health: tuple[V2Route, ...] = ()
    if dialect.health:
        health = (
            Route(
                "GET",
                "/_health",
                topics.health,
                "proxyGetHealth",
                TAG,
                "Uptime and version",
                answers={200: Health},
            ),
        )
    return (
        *_metadata(topics),
        *health,
        *_records(ProduceRoutes(config, dialect, acting), PartitionReadRoutes(config, dialect, acting)),
        *_instances(ConsumerRoutes(instances)),
        *_offsets(OffsetRoutes(instances)),
    )


def _metadata(topics: TopicRoutes) -> tuple[V2Route, ...]:
    return (
        Route("GET", "/", topics.root, "proxyGetRoot", TAG, "See that a proxy is there", answers={200: Root}),
        Route(
            "GET", "/brokers", topics.brokers, "proxyListBrokers", TAG, "Ids of the brokers",
            answers={200: BrokerIds},
        ),
        Route(
            "GET", "/topics", topics.topics, "proxyListTopics", TAG, "Names of topics",
            answers={200: TopicNames},
        ),
        Route(
            "GET", "/topics/{topic}", topics.topic, "proxyGetTopic", TAG, "A topic's settings and partitions",
            answers={200: TopicMetadata}, refuses=(404,),
        ),
        Route(
            "GET", "/topics/{topic}/partitions", topics.partitions,
            "proxyListPartitions", TAG, "A topic's partitions",
            answers={200: list[PartitionMetadata]}, refuses=(404,),
        ),
        Route(
            "GET", "/topics/{topic}/partitions/{partition}", topics.partition,
            "proxyGetPartition", TAG, "One partition",
            answers={200: PartitionMetadata}, refuses=(404,),
        ),
        Route(
            "GET", "/topics/{topic}/partitions/{partition}/offsets", topics.offsets,
            "proxyGetPartitionOffsets", TAG, "First and next offset of a partition",
            answers={200: PartitionOffsets}, refuses=(404,),
        ),
    )  # fmt: skip


def _records(produce: ProduceRoutes, reads: PartitionReadRoutes) -> tuple[V2Route, ...]:
    return (
        Route(
            "POST", "/topics/{topic}", produce.to_topic, "proxyProduce", TAG, "Write records",
            headers=RequestIdHeader, request=_WRITTEN, answers={200: ProduceResponse},
            refuses=(404, 409, 429, 504, *ON_WRITES),
        ),
        Route(
            "POST", "/topics/{topic}/partitions/{partition}", produce.to_partition,
            "proxyProduceToPartition", TAG, "Write records",
            headers=RequestIdHeader, request=_WRITTEN, answers={200: ProduceResponse},
            refuses=(404, 409, 429, 504, *ON_WRITES),
        ),
        Route(
            "GET", "/topics/{topic}/partitions/{partition}/records", reads.read,
            "proxyReadPartition", TAG, "Read records of one partition",
            query=ReadQuery, answers={200: _READ}, refuses=(404, 410, 416, 422, 429, 503),
        ),
    )  # fmt: skip


def _instances(consumers: ConsumerRoutes) -> tuple[V2Route, ...]:
    return (
        Route(
            "POST", "/consumers/{group}", consumers.create,
            "proxyCreateConsumer", TAG, "Make a consumer instance",
            request=Body({V2: CreateInstance}, optional=True), needs=CONSUMERS, answers={200: InstanceCreated},
            refuses=(409, 429, *ON_WRITES),
        ),
        Route(
            "DELETE", "/consumers/{group}/instances/{instance}", consumers.delete,
            "proxyDeleteConsumer", TAG, "Delete an instance",
            needs=CONSUMERS, answers={204: None}, refuses=ON_DELETIONS,
        ),
        Route(
            "POST", "/consumers/{group}/instances/{instance}/subscription", consumers.subscribe,
            "proxySubscribe", TAG, "Subscribe to topics or to a pattern",
            request=Subscribe, needs=CONSUMERS, answers={204: None}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "GET", "/consumers/{group}/instances/{instance}/subscription", consumers.subscription,
            "proxyGetSubscription", TAG, "Topics of the subscription",
            needs=CONSUMERS, answers={200: Topics}, refuses=(404,),
        ),
        Route(
            "DELETE", "/consumers/{group}/instances/{instance}/subscription", consumers.unsubscribe,
            "proxyUnsubscribe", TAG, "Unsubscribe",
            needs=CONSUMERS, answers={204: None}, refuses=ON_DELETIONS,
        ),
        Route(
            "POST", "/consumers/{group}/instances/{instance}/assignments", consumers.assign,
            "proxyAssign", TAG, "Read these partitions, without the group",
            request=Partitions, needs=CONSUMERS, answers={204: None}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "GET", "/consumers/{group}/instances/{instance}/assignments", consumers.assignments,
            "proxyGetAssignments", TAG, "Partitions that are assigned",
            needs=CONSUMERS, answers={200: Partitions}, refuses=(404,),
        ),
        Route(
            "GET", "/consumers/{group}/instances/{instance}/records", consumers.records,
            "proxyReadRecords", TAG, "The next records",
            query=PollQuery, needs=CONSUMERS, answers={200: _READ}, refuses=(404, 409, 410, 416, 422, 429, 503, 507),
        ),
    )  # fmt: skip


def _offsets(offsets: OffsetRoutes) -> tuple[V2Route, ...]:
    seek = (404, 409, 410, 416, *ON_WRITES)
    return (
        Route(
            "POST", "/consumers/{group}/instances/{instance}/offsets", offsets.commit,
            "proxyCommitOffsets", TAG, "Commit offsets",
            request=Body({V2: CommitOffsets}, optional=True),
            needs=CONSUMERS, answers={200: NothingMore, 204: Reply("Done; so the dialects other than Confluent's.")},
            refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "GET", "/consumers/{group}/instances/{instance}/offsets", offsets.committed,
            "proxyGetCommittedOffsets", TAG, "Committed offsets",
            query=OffsetsQuery, needs=CONSUMERS, answers={200: CommittedOffsets}, refuses=(404, 409, 413, 415, 422),
        ),
        Route(
            "POST", "/consumers/{group}/instances/{instance}/positions", offsets.seek,
            "proxySeek", TAG, "Continue at offsets or moments",
            request=Seek, needs=CONSUMERS, answers={204: None}, refuses=seek,
        ),
        Route(
            "POST", "/consumers/{group}/instances/{instance}/positions/beginning", offsets.to_beginning,
            "proxySeekToBeginning", TAG, "Continue at the beginning",
            request=Partitions, needs=CONSUMERS, answers={204: None}, refuses=seek,
        ),
        Route(
            "POST", "/consumers/{group}/instances/{instance}/positions/end", offsets.to_end,
            "proxySeekToEnd", TAG, "Continue at the end",
            request=Partitions, needs=CONSUMERS, answers={204: None}, refuses=seek,
        ),
    )  # fmt: skip
