"""Users with rights that come and go: an administrator that changes them, and guests that try what they may not."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httptools

from core.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from core.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from core.protocol.messages.sasl_handshake import SaslHandshakeRequest
from core.protocol.schema import Message
from core.records.batch import build_batch
from core.records.record import NewRecord
from core.security.acl import PatternType, Permission, ResourceType
from tests.simulation.readers import fetch, values_of
from tests.simulation.rules import GROUP, PARTITIONS, READ, TOPIC, USERS, WRITE, Right, Rules, group_of
from tests.simulation.streams import GoneError, HttpStream, KafkaStream, Stream
from tests.simulation.world import KAFKA_PORT, Client, World

HTTP_PORT = 8082
# Listeners that ask their clients to log in.
GUEST_KAFKA_PORT, GUEST_HTTP_PORT = 9094, 8083
PRODUCE, METADATA, JOIN, HANDSHAKE, CREATE_ACLS, DELETE_ACLS, AUTHENTICATE = 0, 3, 11, 17, 30, 31, 36
TOPIC_DENIED, GROUP_DENIED, LOGIN_FAILED = 29, 30, 58
# A change whose answer was lost is carried out or lost for good after so long, once the network delivers again.
SETTLED_SECONDS = 5.0
# Answers of HTTP that say nothing of rights: full, draining, waiting for its group, the disk refuses.
HTTP_BUSY = {409, 410, 416, 429, 500, 503, 504, 507}


def rules_of(world: World) -> Rules:
    """The rules of a run that has principals."""
    assert world.rules is not None
    return world.rules


class Administrator(Client):
    """Grants and revokes rights, deletes users and creates them again, and writes records after that.

    Its own requests need no login: User:ANONYMOUS is a super user of such runs.
    """

    pause = 0.6

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.rules = rules_of(world)
        self.kafka = KafkaStream(world.machine.network, KAFKA_PORT)
        self.http = HttpStream(world.machine.network, HTTP_PORT)

    async def begin(self) -> None:
        """Create the users, and give each most of the rights. Before any fault."""
        for user in USERS:
            await self._create(user)
            for right in (READ, WRITE, GROUP):
                if self.chance.random() < 0.8:
                    await self._change(user, right, True)

    async def step(self) -> None:
        """One change; after a loss of its answer wait until it is settled."""
        user = self.chance.choice(USERS)
        try:
            if self.chance.random() < 0.08 or not self.rules.users[user].on(self.world.loop.now):
                await self._renew(user)
                return
            right = self.chance.choice((READ, READ, READ, WRITE, WRITE, GROUP))
            standing = self.rules.rights[user, right]
            known = standing.on_since is not None or standing.off_since is not None
            on = standing.on_since is None if known else self.chance.random() < 0.5
            if not await self._change(user, right, on):
                raise GoneError("refused by the disk")
        except GoneError:
            stalled = max(0.0, self.world.machine.network.stalled_until - self.world.loop.now)
            await asyncio.sleep(stalled + SETTLED_SECONDS)
            raise
        if self.chance.random() < 0.8:
            await self._write()

    # --- rights --------------------------------------------------------------------------------------------

    async def _change(self, user: str, right: Right, on: bool) -> bool:
        """Grant or revoke a right; False if the broker could not store it."""
        standing = self.rules.rights[user, right]
        standing.will_be(on)
        if on:
            steps = [self._delete(user, right, Permission.DENY), self._allow(user, right)]
            if self.chance.random() < 0.5:
                steps.reverse()
        elif self.chance.random() < 0.5:
            steps = [self._delete(user, right, Permission.ALLOW)]
            self.rules.denied.discard((user, right))
        else:
            self.rules.denied.add((user, right))
            steps = [
                self._acl(user, right, Permission.DENY, PatternType.LITERAL, self._resource(user, right))
            ]
        for key, request in steps:
            answer = await self.kafka.call(key, 2, request)
            results = answer.results if key == CREATE_ACLS else answer.filter_results
            if any(one.error_code for one in results):
                return False
        standing.became(on, self.world.loop.now)
        self.say(f"{user} {'may' if on else 'may not'} {right[1].name} {right[0].name}")
        self.did("right granted" if on else "right revoked")
        return True

    def _resource(self, user: str, right: Right) -> str:
        return TOPIC if right[0] is ResourceType.TOPIC else group_of(user)

    def _allow(self, user: str, right: Right) -> tuple[int, Message]:
        name = self._resource(user, right)
        pattern, covering = self.chance.choice(
            (
                (PatternType.LITERAL, name),
                (PatternType.LITERAL, "*"),
                (PatternType.PREFIXED, name[: self.chance.randint(1, len(name))]),
            )
        )
        return self._acl(user, right, Permission.ALLOW, pattern, covering)

    def _acl(
        self, user: str, right: Right, permission: Permission, pattern: PatternType, name: str
    ) -> tuple[int, Message]:
        one = AclCreation(right[0], name, pattern, f"User:{user}", "*", right[1], permission)
        return CREATE_ACLS, CreateAclsRequest(creations=[one])

    def _delete(self, user: str, right: Right, permission: Permission) -> tuple[int, Message]:
        one = DeleteAclsFilter(right[0], None, PatternType.ANY, f"User:{user}", None, right[1], permission)
        return DELETE_ACLS, DeleteAclsRequest(filters=[one])

    # --- users ---------------------------------------------------------------------------------------------

    async def _renew(self, user: str) -> None:
        """Delete a user; or create it, with a token, if it may not be there."""
        standing = self.rules.users[user]
        if not standing.on(self.world.loop.now):
            await self._create(user)
            return
        standing.will_be(False)
        status, answer = await self.http.call("DELETE", f"/api/v1/users/{user}")
        if status not in (204, 404):
            raise GoneError(f"{status} {answer}")
        standing.became(False, self.world.loop.now)
        if user in self.rules.tokens:
            self.rules.dead_tokens.append(self.rules.tokens.pop(user)[0])
        self.did("user deleted")
        self.say(f"{user} is deleted")

    async def _create(self, user: str) -> None:
        standing = self.rules.users[user]
        standing.will_be(True)
        status, answer = await self.http.call("POST", "/api/v1/users", {"name": user})
        if status not in (201, 409):
            raise GoneError(f"{status} {answer}")
        status, answer = await self.http.call("POST", "/api/v1/tokens", {"owner": user})
        if status != 201:
            raise GoneError(f"{status} {answer}")
        self.rules.tokens[user] = (answer["token"], answer["id"])
        standing.became(True, self.world.loop.now)
        self.say(f"{user} is there, with the token {answer['id']}")

    # --- records -------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        """Write a record; the reads that wait for one wake."""
        partition, value = self.chance.randrange(PARTITIONS), self.value()
        self.ledger.at_most_once.add(value)
        sent = self.rules.born[value] = self.world.loop.now
        records = build_batch([NewRecord(value=value)], now_ms=self.world.machine.clock.wall_ms())
        answer = await self.kafka.call(PRODUCE, 9, _produce(partition, bytes(records)))
        found = answer.responses[0].partition_responses[0]
        if not found.error_code:
            self.ledger.acknowledged(TOPIC, partition, found.base_offset, value, durable=True, once=True)
            self.rules.markers[partition] = (sent, found.base_offset)


def _produce(partition: int, records: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=memoryview(records))
    return ProduceRequest(
        acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
    )


class KafkaGuest(Client):
    """A user on the Kafka port: long fetches, Metadata, writes, joins."""

    pause = 0.3

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.rules = rules_of(world)
        self.user = USERS[int(name[-1]) % len(USERS)]
        self.stream = KafkaStream(world.machine.network, GUEST_KAFKA_PORT)
        self._positions = [0] * PARTITIONS

    async def step(self) -> None:
        """One request."""
        what = self.chance.choices((self._fetch, self._metadata, self._produce, self._join), (6, 2, 1, 1))[0]
        await what()

    async def _log_in(self) -> None:
        if self.stream.connected:
            return
        asked, user = self.world.loop.now, self.user
        if user not in self.rules.tokens:
            raise GoneError("it has no token")
        token, _ = self.rules.tokens[user]
        await self.stream.call(HANDSHAKE, 1, SaslHandshakeRequest("PLAIN"))
        answer = await self.stream.call(
            AUTHENTICATE, 1, SaslAuthenticateRequest(f"\0{user}\0{token}".encode())
        )
        if answer.error_code:
            self.stream.close()
            if self.rules.users[user].on(asked):
                raise self.broken(f"{user} could not log in: {answer.error_code}")
            raise GoneError("it could not log in")
        if self.rules.users[user].off(asked):
            raise self.broken(f"leak: {user} has logged in, and was deleted before")

    async def _fetch(self) -> None:
        await self._log_in()
        partition, version = self.chance.randrange(PARTITIONS), self.chance.randint(0, 12)
        offset, wait = self._positions[partition], self.chance.choice((0, 2000, 8000))
        asked = self.world.loop.now
        found = await fetch(self.stream, TOPIC, partition, offset, version, wait)
        refused = found.error_code == TOPIC_DENIED
        self.rules.check(self.user, (READ,), asked, refused, "a fetch")
        if found.error_code:
            if not refused:
                self._positions[partition] = 0
            return
        values = values_of(bytes(found.records or b""), version, offset)
        for at, (_, value) in values.items():
            self.rules.gave(self.user, value, "a fetch")
            self.ledger.saw(TOPIC, partition, at, value, "a guest's fetch")
        if values:
            self._positions[partition] = max(values) + 1
            self.did("guarded fetch")

    async def _metadata(self) -> None:
        await self._log_in()
        wanted = None if self.chance.random() < 0.5 else [MetadataRequestTopic(name=TOPIC)]
        asked, version = self.world.loop.now, self.chance.randint(1, 12)
        answer = await self.stream.call(METADATA, version, MetadataRequest(topics=wanted))
        shown = any(one.name == TOPIC and not one.error_code for one in answer.topics)
        # Either right allows to describe the topic too.
        either = [self.rules.rights[self.user, right] for right in (READ, WRITE)]
        denied = {(self.user, right) for right in (READ, WRITE)} & self.rules.denied
        if shown and not denied and all(one.off(asked) for one in either):
            raise self.broken(f"leak: Metadata showed {TOPIC} to {self.user}, which may not describe it")
        if not shown and any(one.on(asked) for one in either):
            raise self.broken(f"Metadata did not show {TOPIC} to {self.user}, which may describe it")
        self.did("guarded metadata")

    async def _produce(self) -> None:
        await self._log_in()
        partition, value = self.chance.randrange(PARTITIONS), self.value()
        self.ledger.at_most_once.add(value)
        asked = self.rules.born[value] = self.world.loop.now
        records = build_batch([NewRecord(value=value)], now_ms=self.world.machine.clock.wall_ms())
        answer = await self.stream.call(PRODUCE, 9, _produce(partition, bytes(records)))
        found = answer.responses[0].partition_responses[0]
        refused = found.error_code == TOPIC_DENIED
        if refused:
            self.rules.refused.add(value)
        if refused or not found.error_code:
            self.rules.check(self.user, (WRITE,), asked, refused, "a write")
        if not found.error_code:
            self.rules.took(self.user, partition, found.base_offset, "a write")
            self.ledger.acknowledged(TOPIC, partition, found.base_offset, value, durable=True, once=True)
            self.did("guarded produce")

    async def _join(self) -> None:
        await self._log_in()
        request = JoinGroupRequest(
            group_id=group_of(self.user),
            session_timeout_ms=6_000,
            rebalance_timeout_ms=6_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="mine", metadata=b"")],
        )
        asked = self.world.loop.now
        answer = await self.stream.call(JOIN, 2, request)
        self.rules.check(self.user, (GROUP,), asked, answer.error_code == GROUP_DENIED, "JoinGroup")


class WebGuest(Client):
    """A user over HTTP: reads that wait, streams, a managed consumer, writes; at times with a token of before."""

    pause = 0.4

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.rules = rules_of(world)
        self.user = USERS[int(name[-1]) % len(USERS)]
        self.stream = HttpStream(world.machine.network, GUEST_HTTP_PORT)
        self._consumers = f"/api/v1/groups/{group_of(self.user)}/consumers"
        self._ack: str | None = None

    async def step(self) -> None:
        """One request."""
        kinds = (self._read, self._merged, self._produce, self._poll, self._events, self._dead)
        await self.chance.choices(kinds, (3, 1, 1, 5, 1, 1))[0]()

    async def _ask(
        self, method: str, path: str, rights: tuple[Right, ...], body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        """Ask with the user's token; check whether the refusal, or its absence, is right. Raises GoneError."""
        if self.user not in self.rules.tokens:
            raise GoneError("it has no token")
        asked, standing = self.world.loop.now, self.rules.users[self.user]
        lines = {"Authorization": f"Bearer {self.rules.tokens[self.user][0]}", **headers}
        status, answer = await self.stream.call(method, path, body, lines)
        what = f"{method} {path} ({status})"
        if status == 401:
            if standing.on(asked):
                raise self.broken(f"{what}: a valid token was refused")
        elif standing.off(asked):
            raise self.broken(f"leak: {what} was answered to {self.user}, which was deleted before")
        elif status in (200, 201, 403):
            self.rules.check(self.user, rights, asked, status == 403, what)
        elif status not in (*HTTP_BUSY, 404):
            raise self.broken(f"{what}: {answer}")
        return status, answer

    def _gave(self, records: list[dict[str, Any]], what: str) -> None:
        for one in records:
            value = one["value"].encode()
            self.rules.gave(self.user, value, what)
            self.ledger.saw(TOPIC, one["partition"], one["offset"], value, what)
        if records:
            self.did(what)

    async def _read(self) -> None:
        partition, wait = self.chance.randrange(PARTITIONS), self.chance.choice((0, 3000, 8000))
        # The offset after all that was acknowledged: there a read has to wait.
        offset = self.chance.choice((0, self.ledger.durable[TOPIC, partition]))
        path = f"/api/v1/topics/{TOPIC}/partitions/{partition}/records?offset={offset}&encoding=utf8&wait_ms={wait}"
        status, answer = await self._ask("GET", path, (READ,))
        if status == 200:
            self._gave(answer["records"], "guarded read")

    async def _merged(self) -> None:
        wait = self.chance.choice((0, 5000))
        start = self.chance.choice(("earliest", "latest"))
        path = f"/api/v1/topics/{TOPIC}/records?from={start}&encoding=utf8&wait_ms={wait}"
        status, answer = await self._ask("GET", path, (READ,))
        if status == 200:
            self._gave(answer["records"], "guarded merged read")

    async def _produce(self) -> None:
        partition, value = self.chance.randrange(PARTITIONS), self.value()
        self.ledger.at_most_once.add(value)
        self.rules.born[value] = self.world.loop.now
        body = {"records": [{"value": value.decode(), "partition": partition}]}
        headers = {"Idempotency-Key": value.decode()} if self.chance.random() < 0.5 else {}
        path = f"/api/v1/topics/{TOPIC}/records"
        status, answer = await self._ask("POST", path, (WRITE,), body, **headers)
        if status in (401, 403):
            self.rules.refused.add(value)
        if status == 200:
            offset = answer["records"][0]["offset"]
            self.rules.took(self.user, partition, offset, "a write over HTTP")
            self.ledger.acknowledged(TOPIC, partition, offset, value, durable=True, once=True)
            self.did("guarded REST produce")

    async def _poll(self) -> None:
        body: dict[str, object] = {"limit": 20, "wait_ms": self.chance.choice((3000, 8000))}
        if self._ack is not None:
            body["ack"] = self._ack
        status, answer = await self._ask("POST", f"{self._consumers}/{self.name}:poll", (GROUP, READ), body)
        if status == 200:
            self._ack = answer.get("ack")
            self._gave(answer["records"], "guarded poll")
        elif status in (403, 409):
            self._ack = None
        elif status == 404:
            self._ack = None
            made = {"name": self.name, "topics": [TOPIC], "start": "earliest"}
            await self._ask("POST", self._consumers, (GROUP, READ), made)

    async def _dead(self) -> None:
        if not self.rules.dead_tokens:
            return
        token = self.chance.choice(self.rules.dead_tokens)
        path = f"/api/v1/topics/{TOPIC}/partitions/0/records"
        status, answer = await self.stream.call("GET", path, headers={"Authorization": f"Bearer {token}"})
        if status not in (401, 503):
            raise self.broken(f"leak: a token of before its user was deleted was answered: {status} {answer}")
        self.did("dead token refused")

    async def _events(self) -> None:
        """Read a stream of events for a while, however its rights change."""
        if self.user not in self.rules.tokens:
            return
        asked, seconds = self.world.loop.now, self.chance.uniform(2, 15)
        stream = Events(self.world, GUEST_HTTP_PORT)
        path = f"/api/v1/topics/{TOPIC}/records?from=earliest&encoding=utf8"
        try:
            async with asyncio.timeout(seconds):
                status = await stream.begin(path, self.rules.tokens[self.user][0])
                if status in (200, 403):
                    self.rules.check(self.user, (READ,), asked, status == 403, "a stream")
                while status == 200 and not self.world.closing:
                    self._gave(await stream.records(), "guarded event")
        except TimeoutError:
            pass
        finally:
            stream.close()


class Events:
    """One stream of server-sent events."""

    def __init__(self, world: World, port: int) -> None:
        self._stream = Stream(world.machine.network, port)
        self._parser = httptools.HttpResponseParser(self)
        self._body = bytearray()
        self._status = 0
        self._done = False

    def on_headers_complete(self) -> None:
        """httptools."""
        self._status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """httptools."""
        self._body += body

    def on_message_complete(self) -> None:
        """httptools."""
        self._done = True

    async def begin(self, path: str, token: str) -> int:
        """Ask for the stream; return the status of its answer. Raises GoneError."""
        transport = await self._stream.open()
        transport.write(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
            f"Authorization: Bearer {token}\r\n\r\n".encode()
        )
        while not self._status:
            self._parser.feed_data(await self._stream.some())
        return self._status

    async def records(self) -> list[dict[str, Any]]:
        """The records of the next events. Raises GoneError at the end."""
        while b"\n\n" not in self._body:
            if self._done:
                raise GoneError("the stream has ended")
            self._parser.feed_data(await self._stream.some())
        *events, rest = bytes(self._body).split(b"\n\n")
        self._body = bytearray(rest)
        return [
            json.loads(line.removeprefix(b"data: "))
            for event in events
            if b"event: record" in event.split(b"\n")
            for line in event.split(b"\n")
            if line.startswith(b"data: ")
        ]

    def close(self) -> None:
        """End it."""
        self._stream.close()


GUESTS = (("admin", Administrator, 1), ("guest", KafkaGuest, 2), ("web", WebGuest, 2))
"""The clients that a run with principals has beside the others. The digit of a guest's name says which user it is."""
