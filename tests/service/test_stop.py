"""What does a stop in order leave behind?"""

from __future__ import annotations

import signal
from pathlib import Path

from real_server import RealServer

from txrocketmq.codec.headers import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
    UpdateConsumerOffsetResponseHeader,
)
from txrocketmq.model.codes import RequestCode


def test_an_offset_committed_just_before_the_stop_is_kept(tmp_path: Path) -> None:
    with RealServer("rocketmq", tmp_path) as server:
        with server.link() as link:
            link.send_message("TopicA")
            link.send_message("TopicA")
            assert len(link.pull("TopicA")) == 2
            commit = UpdateConsumerOffsetRequestHeader(
                consumer_group="G", topic="TopicA", queue_id=0, commit_offset=2
            )
            link.ask_for(
                UpdateConsumerOffsetResponseHeader, RequestCode.UPDATE_CONSUMER_OFFSET, commit
            )
        server.restart(signal.SIGTERM)
        query = QueryConsumerOffsetRequestHeader(consumer_group="G", topic="TopicA", queue_id=0)
        with server.link() as link:
            found = link.ask_for(
                QueryConsumerOffsetResponseHeader, RequestCode.QUERY_CONSUMER_OFFSET, query
            )
        assert found.offset == 2
