"""The rows of `app.native.routes` that belong to queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.http.route import Body, Handle, Lines, Reply, Route
from app.native.queue_bodies import (
    DeadLetters,
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
    return (*_life(), *_contents(), *_dead_letters())


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


def _dead_letters() -> tuple[Route[Callable[..., Any]], ...]:
    from app.native import dead_letters
    from app.native import queue_schemas as schemas

    return (
        Route(
            "GET", "/queues/{queue}/dead-letters", dead_letters.list_dead_letters,
            "listDeadLetters", "queues", "List the records that a queue has given up",
            needs=QUEUES, answers={200: DeadLetters}, refuses=(404, 409, 429, 503),
        ),
        Route(
            "POST", "/queues/{queue}/dead-letters:redrive", dead_letters.redrive_dead_letters,
            "redriveDeadLetters", "queues", "Append dead letters again",
            request=Body({"application/json": schemas.RedriveToBegin}, optional=True), needs=QUEUES,
            answers={202: Reply("It has begun; a dry run has ended.", schemas.RedriveDetail)},
            refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "POST", "/queues/{queue}/dead-letters:purge", dead_letters.purge_dead_letters,
            "purgeDeadLetters", "queues", "Forget all dead letters",
            needs=QUEUES, answers={204: None}, refuses=(404, 409, *ON_WRITES),
        ),
        Route(
            "GET", "/queues/{queue}/redrives", dead_letters.list_redrives,
            "listRedrives", "queues", "List redrives",
            needs=QUEUES, answers={200: schemas.RedriveList}, refuses=(404, 409, 503),
        ),
        Route(
            "GET", "/queues/{queue}/redrives/{redrive}", dead_letters.get_redrive,
            "getRedrive", "queues", "Describe a redrive",
            needs=QUEUES, answers={200: schemas.RedriveDetail}, refuses=(404, 409, 503),
        ),
        Route(
            "POST", "/queues/{queue}/redrives/{redrive}:cancel", dead_letters.cancel_redrive,
            "cancelRedrive", "queues", "End a redrive",
            needs=QUEUES, answers={200: schemas.RedriveDetail}, refuses=(404, 409, *ON_WRITES),
        ),
    )  # fmt: skip
