"""S03: short and long names, unknown fields, languages and versions, empty values, in both serializations."""

from __future__ import annotations

from typing import Any

import pytest
from real_server import RawLink

from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.header_codec import header_codec
from txrocketmq.codec.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from txrocketmq.model.codes import RequestCode as R

VALUES: dict[str, Any] = {
    "producer_group": "P",
    "topic": "S03",
    "default_topic": "TBW102",
    "default_topic_queue_nums": 4,
    "queue_id": 2,
    "sys_flag": 0,
    "born_timestamp": 1_700_000_000_000,
    "flag": 5,
    "properties": "KEYS\x01k\x02UNIQ_KEY\x01u\x02",
    "reconsume_times": 1,
}
SHORT = header_codec(SendMessageRequestHeaderV2).to_map(SendMessageRequestHeaderV2(**VALUES))
LONG = header_codec(SendMessageRequestHeader).to_map(SendMessageRequestHeader(**VALUES))
FORMS = {"long": (R.SEND_MESSAGE, LONG), "short": (R.SEND_MESSAGE_V2, SHORT)}


def stored(link: RawLink, answer: RemotingCommand) -> dict[str, Any]:
    """What was stored of a message, but for its place and time."""
    assert answer.code == 0, answer.remark
    fields = answer.ext_fields or {}
    (message,) = link.pull("S03", int(fields["queueId"]), int(fields["queueOffset"]))
    names = "topic queue_id body flag sys_flag born_timestamp reconsume_times properties_text"
    return {name: getattr(message, name) for name in names.split()}


@pytest.mark.parametrize("serialize_type", [0, 1], ids=["json", "binary"])
@pytest.mark.parametrize("form", FORMS)
def test_all_forms_store_the_same_message(link: RawLink, form: str, serialize_type: int) -> None:
    expected = stored(
        link, link.ask(R.SEND_MESSAGE_V2, SendMessageRequestHeaderV2(**VALUES), body=b"x")
    )
    code, fields = FORMS[form]

    def send(changes: dict[str, str] | None = None, **options: Any) -> RemotingCommand:
        return link.ask(
            code,
            ext_fields={**fields, **(changes or {})},
            body=b"x",
            serialize_type=serialize_type,
            **options,
        )

    assert stored(link, send()) == expected
    assert stored(link, send({"zzz": "more than the server knows"})) == expected
    assert stored(link, send(version=32767)) == expected
    assert stored(link, send(language=99)) == expected
    # An optional field with an empty value.
    assert stored(link, send({"brokerName": "", "n": "", "bname": ""})) == expected


@pytest.mark.parametrize("serialize_type", [0, 1], ids=["json", "binary"])
@pytest.mark.parametrize("form", FORMS)
def test_a_required_field_left_out_is_named_and_the_link_stays_open(
    link: RawLink, form: str, serialize_type: int
) -> None:
    code, fields = FORMS[form]
    for name in ("topic", "queueId", "bornTimestamp") if form == "long" else ("b", "e", "g"):
        answer = link.ask(
            code,
            ext_fields={key: value for key, value in fields.items() if key != name},
            serialize_type=serialize_type,
        )
        assert (answer.code, answer.remark) == (1, f"header field '{name}': is missing")
    assert link.ask(code, ext_fields=fields, serialize_type=serialize_type).code == 0


def test_a_language_without_a_name_is_no_matter(link: RawLink) -> None:
    for language in (b'"KLINGON"', b"99", b"null", b"-1"):
        command = link.request(R.SEND_MESSAGE_V2, ext_fields=SHORT)
        text = command.encode()[8:].replace(b'"PYTHON"', language)
        link.send((4 + len(text)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text)
        assert link.answer(command.opaque).code == 0


def test_an_empty_value_is_empty_in_json_and_absent_in_binary() -> None:
    for serialize_type, read in ((0, {"a": "1", "b": ""}), (1, {"a": "1"})):
        command = RemotingCommand.create_request(
            10, ext_fields={"a": "1", "b": ""}, serialize_type=serialize_type
        )
        assert decode_command(command.encode()[4:]).ext_fields == read
