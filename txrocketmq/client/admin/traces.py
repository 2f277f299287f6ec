"""What do the records say that tracing clients leave in the trace topic? Stands for the reading half of ``TraceDataEncoder``."""

from __future__ import annotations

from collections.abc import Callable

from txrocketmq.client.trace import TraceBean, TraceRecord, TraceType

_FIELD = "\x01"
_END = "\x02"
_KINDS = ("normal", "half", "commit", "delay", "order")


def decode_traces(text: str) -> list[TraceRecord]:
    """All records of a trace message. Lines that no known release writes are left out."""
    found = []
    for line in text.split(_END):
        fields = line.split(_FIELD)
        read = _READERS.get(fields[0].strip())
        if read is None:
            continue
        try:
            found.append(read(fields))
        except (IndexError, ValueError):
            continue
    return found


def _head(kind: TraceType, fields: list[str], bean: TraceBean) -> TraceRecord:
    return TraceRecord(
        type=kind, time=int(fields[1]), region=fields[2], group=fields[3], beans=[bean]
    )


def _known(text: str) -> str | None:
    """Java writes ``null`` for what it does not know."""
    return None if text == "null" else text


def _kind(text: str) -> str:
    number = int(text)
    return _KINDS[number] if 0 <= number < len(_KINDS) else _KINDS[0]


def _pub(fields: list[str]) -> TraceRecord:
    bean = _about(fields)
    bean.body_length = int(fields[9])
    bean.kind = _kind(fields[11])
    record = _head(TraceType.PUB, fields, bean)
    record.cost = int(fields[10])
    # Releases before 4.4.1 told no offset message id.
    if len(fields) > 13:
        bean.offset_msg_id = fields[12]
    record.success = fields[min(13, len(fields) - 1)] == "true"
    return record


def _about(fields: list[str]) -> TraceBean:
    return TraceBean(
        topic=fields[4],
        msg_id=fields[5],
        tags=_known(fields[6]),
        keys=_known(fields[7]),
        store_host=fields[8],
    )


def _sub_before(fields: list[str]) -> TraceRecord:
    bean = TraceBean(msg_id=fields[5], retry_times=int(fields[6]), keys=_known(fields[7]))
    record = _head(TraceType.SUB_BEFORE, fields, bean)
    record.request_id = fields[4]
    return record


def _sub_after(fields: list[str]) -> TraceRecord:
    record = TraceRecord(
        type=TraceType.SUB_AFTER,
        time=int(fields[7]) if len(fields) > 8 else 0,
        group=fields[8] if len(fields) > 8 else "",
        request_id=fields[1],
        cost=int(fields[3]),
        success=fields[4] == "true",
        beans=[TraceBean(msg_id=fields[2], keys=_known(fields[5]))],
    )
    if len(fields) > 6:
        record.context_code = int(fields[6])
    return record


def _end_transaction(fields: list[str]) -> TraceRecord:
    bean = _about(fields)
    bean.kind = _kind(fields[9])
    bean.transaction_id = _known(fields[10])
    bean.transaction_state = fields[11]
    bean.from_check = fields[12] == "true"
    return _head(TraceType.END_TRANSACTION, fields, bean)


def _recall(fields: list[str]) -> TraceRecord:
    record = _head(TraceType.RECALL, fields, TraceBean(topic=fields[4], msg_id=fields[5]))
    record.success = fields[6] == "true"
    return record


_READERS: dict[str, Callable[[list[str]], TraceRecord]] = {
    TraceType.PUB.value: _pub,
    TraceType.SUB_BEFORE.value: _sub_before,
    TraceType.SUB_AFTER.value: _sub_after,
    TraceType.END_TRANSACTION.value: _end_transaction,
    TraceType.RECALL.value: _recall,
}
