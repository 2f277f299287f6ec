"""Signatures as the official software makes them."""

from __future__ import annotations

import pytest
from golden import LINES, units

from txrocketmq.codec.signature import calculate_signature, signed_content


@pytest.mark.parametrize("line", LINES)
def test_official_signatures(line: str) -> None:
    vectors = units(line)["aclSignatures"]
    assert len(vectors) >= 5
    for vector in vectors:
        if "text" in vector:
            content = vector["text"].encode()
        else:
            content = signed_content(vector["extFields"], bytes.fromhex(vector["body_hex"]))
            assert content.hex() == vector["signed_hex"]
        assert calculate_signature(content, vector["secretKey"]) == vector["signature"]


def test_names_are_in_the_order_of_their_code_units_and_the_signature_is_left_out() -> None:
    fields = {"b": "2", "A": "1", "\U0001f600": "4", "\uffee": "5", "a": "3", "Signature": "no"}
    assert signed_content(fields, b"!") == b"1" + b"3" + b"2" + b"4" + b"5" + b"!"
