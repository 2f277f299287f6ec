"""What does the broker make of a message's properties before it stores them?

Stands for the property work of ``SendMessageProcessor`` and ``AbstractSendMessageProcessor.buildMsgContext``: the client's text is
kept as it came, the broker's own properties are added behind it. Only a text with repeated, empty or reserved entries is written
anew.
"""

from __future__ import annotations

from typing import NamedTuple

from txrocketmq import native
from txrocketmq.model import properties as props
from txrocketmq.model.message_id import create_uniq_id
from txrocketmq.model.properties import PROPERTY_SEPARATOR, parse_properties

#: Set by the broker or its store, whatever the client says; and what only POP may set.
_OWN = frozenset({props.MSG_REGION, props.TRACE_SWITCH, props.CLUSTER, props.POP_CK, props.CRC32})
_SCHEDULED = frozenset(
    {
        props.DELAY_TIME_LEVEL,
        props.TIMER_DELAY_SEC,
        props.TIMER_DELAY_MS,
        props.TIMER_DELIVER_MS,
        props.TIMER_DEL_UNIQKEY,
    }
)
_NOTEWORTHY = _OWN | _SCHEDULED | {props.TRANSACTION_PREPARED}


class Prepared(NamedTuple):
    """A message's properties, ready for the store.

    :ivar text: what is stored.
    :ivar found: the client's properties as a map (with ``UNIQ_KEY``).
    :ivar uniq_key: the client's message id, or a new one.
    :ivar is_special: the message asks for delayed delivery or for a transaction; see `txrocketmq.broker.send.special`.
    """

    text: bytes
    found: dict[str, str]
    uniq_key: str
    is_special: bool


#: Compiled: the usual text, which is complete and asks for nothing special; None for any other.
_prepare_plain = None if native.functions is None else native.functions.prepare


class PropertyWriter:
    """Adds one broker's own properties to messages.

    :param cluster: the broker's cluster, stored as ``CLUSTER``.
    :param region: stored as ``MSG_REGION``.
    :param trace: ``true`` or ``false``, stored as ``TRACE_ON``.
    """

    def __init__(self, cluster: str, region: str, trace: str) -> None:
        self._own = {
            props.MSG_REGION: region,
            props.TRACE_SWITCH: trace,
            props.CLUSTER: cluster,
        }
        self._suffix = _text(self._own)
        self._suffix_bytes = self._suffix.encode("utf-8", "replace")

    def prepare(self, text: str | None) -> Prepared:
        """The client's properties with the broker's own behind them."""
        if text and _prepare_plain is not None:
            prepared: Prepared | None = _prepare_plain(
                text, _NOTEWORTHY, self._suffix_bytes, Prepared
            )
            if prepared is not None:
                return prepared
        return self.prepare_any(text)

    def prepare_any(self, text: str | None) -> Prepared:
        """As `prepare`, in Python."""
        if not text:
            uniq_key = create_uniq_id()
            stored = f"{props.UNIQ_KEY}\x01{uniq_key}\x02{self._suffix}"
            return Prepared(stored.encode(), {props.UNIQ_KEY: uniq_key}, uniq_key, False)
        found = parse_properties(text)
        is_special = False
        separators = text.count(PROPERTY_SEPARATOR)
        if text[-1] != PROPERTY_SEPARATOR:
            text += PROPERTY_SEPARATOR
            separators += 1
        if separators != len(found) or not _NOTEWORTHY.isdisjoint(found):
            for name in _OWN:
                found.pop(name, None)
            text = _text(found)
            is_special = not _NOTEWORTHY.isdisjoint(found)
        uniq_key = found.get(props.UNIQ_KEY, "")
        if not uniq_key:
            uniq_key = found[props.UNIQ_KEY] = create_uniq_id()
            text = f"{text}{props.UNIQ_KEY}\x01{uniq_key}\x02"
        stored_text = text + self._suffix
        return Prepared(stored_text.encode("utf-8", "replace"), found, uniq_key, is_special)


def is_prepared(found: dict[str, str]) -> bool:
    """Whether the message is the first half of a transaction."""
    return found.get(props.TRANSACTION_PREPARED, "").lower() == "true"


def _text(properties: dict[str, str]) -> str:
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
