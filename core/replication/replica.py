"""One replicated partition as one broker sees it: the leader, the end of each replica, the committed offset.

Theory. Each broker holds a log; the leader's is the right one, followers copy it. Only an operator elects a
leader, by telling a broker to lead. That broker takes an epoch of its own (`core.replication.epochs`) and asks the
others to promise it. A broker that has promised an epoch serves no older one. So the old leader, even if it does
not know of the new one, gets no more fetches of followers, and commits nothing.

- *committed* is what is below the high watermark: every replica of the in-sync set has it, and the set has
  at least `min.insync.replicas` members. Only that is shown to consumers and acknowledged to acks=all.
- `epoch` is the newest epoch this broker has promised. `start` is the end of the leader's log when it began.
- `complete` is the newest epoch whose leader's log up to `start` this broker has: its own epoch when it was
  promoted, the leader's once its log has reached `start`. A follower enters the in-sync set only then.

Which log may lead? Of the answers to the question, the one with the greatest (`complete`, end). Any RF −
min.insync.replicas + 1 answers hold one of a replica that had the last committed record, and a replica that beats
that one has it too: with the same `complete` both logs are prefixes of one leader's log, and the longer has it;
with a greater one its log holds all that the later leader began with, which by the same rule had it. (This is the
view change of Viewstamped Replication, Oki and Liskov 1988, with an operator as the timer. The last epoch *in the
log* would not do: a leader that commits an old record in a new epoch without writing anything would lose it to a
log with a newer, uncommitted record; Raft's figure 8.)

Pure: no log, no clock, no socket. Offsets and monotonic seconds are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from core.replication.epochs import first_epoch, leader_of

UNKNOWN = -1


class Remembered(NamedTuple):
    """What must not be forgotten of a partition: it is on the disk before another broker learns it."""

    epoch: int
    complete: int
    start: int


class Standing(NamedTuple):
    """How good a log is as a leader's: the greater the better."""

    complete: int
    end: int


class Moved(NamedTuple):
    """The changes of a step, for requests that wait."""

    high_watermark: bool = False
    isr: bool = False


class Progress:
    """What a leader knows of one follower: the end of its log, and when that was last the end of the leader's."""

    __slots__ = ("asked_at", "caught_up_at", "end", "heard", "leader_end")

    def __init__(self, now: float) -> None:
        # Everything below is in the follower's log; −1 before its first fetch in this epoch.
        self.end = UNKNOWN
        self.caught_up_at = now
        # The leader's end and the time at its last fetch. A follower that reaches that end later was caught up then
        # (KIP-16).
        self.leader_end = 0
        self.asked_at = now
        # Whether it has fetched in this epoch, and so knows the leader.
        self.heard = False


class Replica:
    """A partition on this broker. A leader is told of appends and fetches, a follower of what it has copied."""

    __slots__ = (
        "active", "broker_id", "complete", "epoch", "followers", "high_watermark", "isr", "lag", "paused_until",
        "replicas", "resigned", "start",
    )  # fmt: skip

    def __init__(
        self, broker_id: int, replicas: Iterable[int], *, lag: float, remembered: Remembered | None = None
    ) -> None:
        self.broker_id = broker_id
        # As assigned; the first one leads at the beginning.
        self.replicas = tuple(replicas)
        # Seconds that a follower may lag before it leaves the in-sync set.
        self.lag = lag
        first = first_epoch(self.replicas[0])
        self.epoch, self.complete, self.start = remembered or Remembered(first, first, 0)
        # Whether the leader of `epoch` is known to have begun. A leader that was restarted has not.
        self.active = False
        # An operator told this broker not to lead.
        self.resigned = False
        # Until when appends are refused, so that another broker can catch up and take over; monotonic seconds.
        self.paused_until = 0.0
        self.high_watermark = 0
        # Known on the leader; a follower shows what it has seen last.
        self.isr: set[int] = {broker_id}
        self.followers: dict[int, Progress] = {}

    # --- what it is ----------------------------------------------------------------------------------------

    @property
    def remembered(self) -> Remembered:
        """What must be on the disk before the next answer."""
        return Remembered(self.epoch, self.complete, self.start)

    @property
    def leads(self) -> bool:
        """Whether this broker serves the partition."""
        return self.source and not self.resigned

    @property
    def source(self) -> bool:
        """Whether followers copy from this broker: also when it was told to serve no clients."""
        return self.active and leader_of(self.epoch) == self.broker_id

    @property
    def leader(self) -> int:
        """The broker that leads as far as known here; −1 if none is known."""
        leader = leader_of(self.epoch)
        return UNKNOWN if not self.active or (leader == self.broker_id and self.resigned) else leader

    @property
    def follows(self) -> bool:
        """Whether there is a leader to copy from: another broker that has begun to lead."""
        return self.active and leader_of(self.epoch) != self.broker_id

    def standing(self, end: int) -> Standing:
        """How good this log is as a leader's, if it ends at `end`."""
        return Standing(self.complete, end)

    # --- roles ---------------------------------------------------------------------------------------------

    def created(self, now: float) -> None:
        """The partition is new and empty everywhere: the first replica leads, and all are in sync."""
        self.active = True
        self.isr = set(self.replicas)
        if leader_of(self.epoch) == self.broker_id:
            self.followers = {r: Progress(now) for r in self.replicas if r != self.broker_id}
            for progress in self.followers.values():
                progress.end = 0

    def restored(self, end: int) -> None:
        """The broker was restarted, and the log ends at `end`. A log that has lost what it began with is no longer
        complete in its epoch."""
        if end < self.start and self.complete == self.epoch:
            self.complete = UNKNOWN

    def promise(self, epoch: int) -> bool:
        """Serve nothing older than `epoch` any more. False if that or a newer one was promised before."""
        if epoch <= self.epoch:
            return False
        self.epoch, self.start = epoch, UNKNOWN
        self.active = self.resigned = False
        self.isr, self.followers = set(), {}
        return True

    def lead(self, end: int, now: float) -> None:
        """Begin to lead in the epoch that was promised to this broker itself, with a log that ends at `end`."""
        assert leader_of(self.epoch) == self.broker_id
        self.start, self.complete = end, self.epoch
        self.active, self.resigned, self.paused_until = True, False, 0.0
        self.isr = {self.broker_id}
        self.followers = {r: Progress(now) for r in self.replicas if r != self.broker_id}

    def follow(self, epoch: int, start: int) -> bool:
        """The leader of `epoch` has begun at offset `start`. False if a newer epoch was promised."""
        if epoch < self.epoch:
            return False
        self.promise(epoch)
        self.start, self.active = start, True
        return True

    def resign(self) -> None:
        """Stop leading because an operator asked for it."""
        self.resigned = True

    # --- leading -------------------------------------------------------------------------------------------

    def progress(self, broker_id: int, end: int, log_end: int, now: float, needed: int) -> Moved:
        """A follower asks for what comes from `end` on, so it has all below. `log_end` is the leader's end.

        `needed` is min.insync.replicas. A position can go back: a follower may have lost what it had.
        """
        progress = self.followers[broker_id]
        if end >= log_end:
            progress.caught_up_at = now
        elif progress.heard and end >= progress.leader_end:
            progress.caught_up_at = max(progress.caught_up_at, progress.asked_at)
        progress.end, progress.leader_end, progress.asked_at, progress.heard = end, log_end, now, True
        joined = False
        if (
            broker_id not in self.isr
            and end >= self.high_watermark
            and end >= self.start
            and now - progress.caught_up_at <= self.lag
        ):
            self.isr.add(broker_id)
            joined = True
        return Moved(self.advance(log_end, needed), joined)

    def advance(self, log_end: int, needed: int) -> bool:
        """Move the high watermark as far as the in-sync set has come; whether it moved."""
        if len(self.isr) < needed:
            return False
        ends = [self.followers[r].end for r in self.isr if r != self.broker_id]
        committed = min([log_end, *ends])
        if committed <= self.high_watermark or committed < self.start:
            return False
        self.high_watermark = committed
        return True

    def expire(self, log_end: int, now: float, needed: int) -> Moved:
        """Remove followers from the in-sync set that lagged for too long."""
        late = {
            r
            for r, progress in self.followers.items()
            if r in self.isr
            and now - progress.caught_up_at > self.lag
            and not self._idle(progress, log_end, now)
        }
        if not late:
            return Moved()
        self.isr -= late
        return Moved(self.advance(log_end, needed), True)

    def _idle(self, progress: Progress, log_end: int, now: float) -> bool:
        """Whether it has everything and still asks, only not just now: a long poll that waits."""
        return progress.end >= log_end and now - progress.asked_at <= self.lag

    # --- following -----------------------------------------------------------------------------------------

    def copied(self, end: int, leader_high_watermark: int) -> tuple[bool, bool]:
        """The log ends at `end` now, and the leader has committed up to there.

        (whether the high watermark moved, whether the log became complete in its epoch, which must be stored).
        """
        completed = self.complete < self.epoch and 0 <= self.start <= end
        if completed:
            self.complete = self.epoch
        committed = min(end, leader_high_watermark)
        moved = committed > self.high_watermark
        if moved:
            self.high_watermark = committed
        return moved, completed

    def cut(self, end: int) -> None:
        """The log was cut at `end`. Below the high watermark that happens only after an unclean promotion."""
        self.high_watermark = min(self.high_watermark, end)


def needed_answers(replicas: int, min_insync: int) -> int:
    """Of how many replicas, the promoted one included, the state must be known so that nothing committed is lost."""
    return max(1, replicas - min(min_insync, replicas) + 1)


def better_than(candidate: Standing, answers: dict[int, Standing]) -> int | None:
    """The broker that should lead instead of the candidate, because its log is better; None if none is."""
    broker_id = max(answers, key=lambda one: answers[one], default=None)
    return broker_id if broker_id is not None and answers[broker_id] > candidate else None
