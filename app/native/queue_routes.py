"""The rows of `app.native.routes` that belong to queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.http.route import Body, Handle, Lines, Reply, Route
from app.native.queue_bodies import (
    LeasedRecord,
    LeaseHeaders,
    LeaseReceived,
    PeekedRecords,
    Settlement,
    SettlementDone,
    ToReceive,
)
from app.native.queue_receiving import QueueRoutes
from app.native.refusals_on_writes import ON_WRITES
from core.vocabulary.capabilities import QUEUES


def receiving_routes(queues: QueueRoutes) -> tuple[Route[Handle], ...]:
    """Return the hot routes, which run below FastAPI."""
    return (
        Route(
            "POST", "/queues/{queue}:receive", queues.receive,
            "receiveRecords", "queues", "Lease records of a queue",
            request=Body({"application/json": ToReceive}, optional=True), needs=QUEUES,
            answers={
                200: Reply(
                    "The records, and until when they are yours; or none.",
                    LeaseReceived, {"application/x-ndjson": Lines(LeasedRecord)}, LeaseHeaders,
                ),
            },
            refuses=(404, 406, 409, 429, *ON_WRITES),
        ),
        Route(
            "POST", "/queues/{queue}:settle", queues.settle,
            "settleRecords", "queues", "Accept, release or reject records, or extend their locks",
            request=Settlement, needs=QUEUES,
            answers={200: Reply("What became of each item.", SettlementDone)},
            refuses=(404, 409, *ON_WRITES),
        ),
    )  # fmt: skip


def queue_routes() -> tuple[Route[Callable[..., Any]], ...]:
    """Return the other routes. Load FastAPI."""
    return (*_life(), *_contents())


def _life() -> tuple[Route[Callable[..., Any]], ...]:
    from app.native import queue_schemas as schemas
    from app.native import queues

    return (
        Route(
            "GET", "/queues", queues.list_queues, "listQueues", "queues", "List queues",
            needs=QUEUES, answers={200: schemas.QueuePage}, refuses=(503,),
        ),
        Route(
            "PUT", "/queues/{queue}", queues.put_queue, "putQueue", "queues", "Create a queue, or change it",
            request=schemas.QueueToPut, needs=QUEUES,
            answers={
                200: Reply("The queue has these settings.", schemas.QueueDetail),
                201: Reply("The queue is new.", schemas.QueueDetail),
            },
            refuses=(404, 409, 412, *ON_WRITES),
        ),
        Route(
            "GET", "/queues/{queue}", queues.get_queue, "getQueue", "queues", "Describe a queue",
            needs=QUEUES, answers={200: schemas.QueueDetail}, refuses=(404, 409, 503),
        ),
        Route(
            "DELETE", "/queues/{queue}", queues.delete_queue, "deleteQueue", "queues", "Delete a queue",
            needs=QUEUES, answers={204: None}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "POST", "/queues/{queue}:pause", queues.pause_queue, "pauseQueue", "queues", "Deliver nothing",
            needs=QUEUES, answers={200: schemas.QueueDetail}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "POST", "/queues/{queue}:resume", queues.resume_queue, "resumeQueue", "queues", "Deliver again",
            needs=QUEUES, answers={200: schemas.QueueDetail}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "POST", "/queues/{queue}:seek", queues.seek_queue,
            "seekQueue", "queues", "Begin at another place",
            request=schemas.QueueSeek, needs=QUEUES,
            answers={200: schemas.QueueCounts}, refuses=(404, 409, *ON_WRITES),
        ),
    )  # fmt: skip


def _contents() -> tuple[Route[Callable[..., Any]], ...]:
    from app.native import queue_schemas as schemas
    from app.native import queues

    return (
        Route(
            "POST", "/queues/{queue}:peek", queues.peek_queue,
            "peekQueue", "queues", "Show the records that would be delivered next",
            request=Body({"application/json": schemas.Peek}, optional=True), needs=QUEUES,
            answers={200: PeekedRecords}, refuses=(404, 409, 429, *ON_WRITES),
        ),
        Route(
            "GET", "/queues/{queue}/stats", queues.get_queue_stats,
            "getQueueStats", "queues", "Read the counts of a queue",
            needs=QUEUES, answers={200: schemas.QueueCounts}, refuses=(404, 409, 503),
        ),
        Route(
            "GET", "/queues/{queue}/in-flight", queues.list_in_flight,
            "listInFlight", "queues", "List records in flight",
            needs=QUEUES, answers={200: schemas.InFlightPage}, refuses=(404, 409, 503),
        ),
        Route(
            "GET", "/queues/{queue}/records/{topic}/{partition}/{offset}", queues.get_queue_record,
            "getQueueRecord", "queues", "Describe a record in a queue",
            needs=QUEUES, answers={200: schemas.RecordInFlight}, refuses=(404, 409, 503),
        ),
    )  # fmt: skip
