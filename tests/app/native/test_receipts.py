"""Receipts and leases as text."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.native.receipts import MAX_RECEIPT, lease_of, lease_text, receipt_of, receipt_text
from core.vocabulary.queues import Receipt

ID = UUID(int=2**127 + 12345)


@given(
    st.builds(
        Receipt,
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**64 - 1),
        st.uuids(),
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**63 - 1),
    )
)
def test_a_receipt_is_what_its_text_says(receipt: Receipt) -> None:
    text = receipt_text(receipt)
    assert receipt_of(text) == receipt and len(text) <= MAX_RECEIPT
    assert lease_of(lease_text(receipt.lease)) == receipt.lease
    assert lease_of(text) is None and receipt_of(lease_text(receipt.lease)) is None


@given(st.text(max_size=MAX_RECEIPT))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for found in (receipt_of(text), lease_of(text)):
        assert found is None or isinstance(found, tuple | int)


@pytest.mark.parametrize(
    "offset", ["", "-1", "+1", " 1", "1_0", "g", "8000000000000000", "0" * 17, "0x", "\u0661\u00b2"]
)
def test_an_offset_has_hexadecimal_digits_alone(offset: str) -> None:
    prefix = receipt_text(Receipt(1, 2, ID, 0, 0)).removesuffix("0")
    assert receipt_of(prefix + offset) is None


def test_a_partition_has_31_bits() -> None:
    text = receipt_text(Receipt(1, 2, ID, 2**31 - 1, 0))
    assert receipt_of(text) is not None
    assert receipt_of(text.replace("7fffffff", "80000000")) is None
