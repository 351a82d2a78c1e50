"""Numbers of leader epochs that name their leader, so that no two brokers can ever lead in the same epoch.

    epoch = round × 32 + broker id

No third party assigns epochs: a broker that is promoted takes its own next number. If two brokers led in one epoch,
two histories would have the same number, and replicas could not tell them apart.
"""

from __future__ import annotations

from core.config import MAX_BROKERS

# An int32 is enough for 67 million promotions of a partition.
STRIDE = MAX_BROKERS


def leader_of(epoch: int) -> int:
    """The broker that leads in this epoch."""
    return epoch % STRIDE


def first_epoch(broker_id: int) -> int:
    """The epoch in which a broker leads a partition that was just created."""
    return broker_id


def next_epoch(current: int, broker_id: int) -> int:
    """The smallest epoch above `current` that belongs to `broker_id`."""
    step = (broker_id - current) % STRIDE
    return current + (step or STRIDE)
