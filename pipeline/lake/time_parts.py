"""Year, month, day and hour of a timestamp, UTC, as columns to partition a table by: in Arrow and in Spark alike.

A time outside of the years 1 to 9999 has no parts: they are null. Such times come from producers that take
microseconds for milliseconds, and neither Hive's directories nor Python's dates can say them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as f

ARROW_TYPES = {"year": pa.int32(), "month": pa.string(), "day": pa.date32(), "hour": pa.int32()}
"""The parts there are, and the types of their columns."""

# In microseconds: the first that has parts, and the first that has none again.
_FIRST, _BEHIND = -62_135_596_800_000_000, 253_402_300_800_000_000


def _month(times: pa.Array) -> pa.Array:
    year, month = (pc.cast(part(times), pa.string()) for part in (pc.year, pc.month))
    return pc.binary_join_element_wise(pc.utf8_lpad(year, 4, "0"), pc.utf8_lpad(month, 2, "0"), "-")


_IN_ARROW: dict[str, Callable[[Any], Any]] = {
    "year": pc.year,
    "month": _month,
    "day": lambda times: times.cast(pa.date32()),
    "hour": pc.hour,
}
_IN_SPARK: dict[str, Callable[[Column], Column]] = {
    "year": f.year,
    "month": lambda times: f.date_format(times, "yyyy-MM"),
    "day": f.to_date,
    "hour": f.hour,
}


def in_arrow(name: str, times: pa.Array) -> pa.Array:
    """A part of an Arrow array of timestamps in microseconds."""
    micros = times.cast(pa.int64())
    known = pc.and_(pc.greater_equal(micros, _FIRST), pc.less(micros, _BEHIND))
    # Without its zone, which is UTC, no database of time zones is asked.
    naive = pc.if_else(known, micros, None).cast(pa.timestamp("us"))
    return _IN_ARROW[name](naive).cast(ARROW_TYPES[name])


def in_spark(name: str, times: Column) -> Column:
    """The same of a column of Spark's, in a session whose time zone is UTC."""
    micros = f.unix_micros(times)
    return f.when((micros >= _FIRST) & (micros < _BEHIND), _IN_SPARK[name](times))
