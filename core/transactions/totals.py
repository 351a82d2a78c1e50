"""The transactions of a broker in numbers, for its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from core.transactions.transaction import Transaction
from core.vocabulary.transactions import Outcome, TransactionTotals

# Kafka's: an open transaction of this age beyond the longest timeout is late (`hasLateTransaction`).
LATE_MS = 5 * 60_000


def totals(
    transactions: Iterable[Transaction],
    *,
    now_ms: int,
    longest_ms: int,
    unmarked: int,
    ended: Mapping[Outcome, int],
    hanging: int,
) -> TransactionTotals:
    """Count transactions. `now_ms` is wall time, `longest_ms` the longest timeout that a client may ask for."""
    count = 0
    ages = []
    for one in transactions:
        count += 1
        if one.ongoing or one.ending:
            ages.append(max(0, now_ms - one.start_ms))
    return TransactionTotals(
        ids=count,
        open=len(ages),
        oldest_ms=max(ages, default=0),
        late=sum(age > longest_ms + LATE_MS for age in ages),
        unmarked=unmarked,
        ended={outcome: ended.get(outcome, 0) for outcome in Outcome},
        hanging=hanging,
    )
