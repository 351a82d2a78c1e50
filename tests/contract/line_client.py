"""The line protocol as a client of the scenarios, with what it can say."""

from __future__ import annotations

import uuid
from typing import ClassVar

from tests.broker_process import BrokerProcess
from tests.clients.line import Answer, LineConnection
from tests.contract.vocabulary import ClientError, Membership


class LineClient:
    """Lines.

    The key of a message chooses its partition, so `produce` is for topics of one partition. Only a member commits. A
    member chooses its own id.
    """

    name: ClassVar[str] = "text"
    VERBS: ClassVar[frozenset[str]] = frozenset({"write", "join"})

    def __init__(self, broker: BrokerProcess) -> None:
        self._line = LineConnection(broker.line_address)

    def close(self) -> None:
        self._line.close()

    def _ask(self, command: str, args: bytes | str) -> Answer:
        answer = self._line.ask(command, args)
        if answer.code:
            # The message begins with Kafka's name, where the code itself is none.
            name, _, message = answer.payload.partition(": ")
            raise ClientError(name if name.isupper() else answer.code, message)
        return answer

    def produce(
        self, topic: str, partition: int, records: list[tuple[bytes | None, bytes | None]]
    ) -> list[int]:
        assert partition == 0
        lines = [b"%b %b:%b acks=all" % (topic.encode(), key or b"", value or b"") for key, value in records]
        return [self._ask("PRODUCE", line).number("offset") for line in lines]

    def commit(
        self, group: str, topic: str, partition: int, offset: int, member: Membership | None = None
    ) -> None:
        assert member is not None
        self._ask("COMMIT", f"{self._client_name(member)} {partition} {offset}")

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        offset = self._ask("OFFSET", f"{group} {topic} {partition}").number("offset")
        return None if offset == -1 else offset

    def join(self, group: str, topics: list[str], member_id: str = "") -> Membership:
        (topic,) = topics
        member_id = member_id or uuid.uuid4().hex
        answer = self._ask("JOIN", f"{group} {topic} {member_id}")
        return Membership(group, member_id, answer.number("generation"), topic)

    def _client_name(self, member: Membership) -> str:
        return f"{member.group} {member.topic} {member.member_id} {member.generation}"

    def owned(self, member: Membership) -> set[tuple[str, int]]:
        return {(member.topic, p) for p in self._ask("SYNC", self._client_name(member)).numbers("assigned")}

    def heartbeat(self, member: Membership) -> None:
        self._ask("HEARTBEAT", self._client_name(member))

    def leave(self, member: Membership) -> None:
        self._ask("LEAVE", self._client_name(member))
