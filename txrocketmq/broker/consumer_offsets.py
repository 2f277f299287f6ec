"""Where does each consumer group stand in each queue?

Stands for ``ConsumerOffsetManager``: kept in ``consumerOffset.json``, saved every five seconds and at stop. Crash story: a crash
forgets at most the last period, so its messages are delivered again; offsets never move past what was consumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.broker.config_files import PersistedTable
from txrocketmq.codec.bodies import ConsumerOffsetSerializeWrapper, decode_body, encode_body
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import BodyError, StoreError
from txrocketmq.interfaces import IConfigFiles
from txrocketmq.model.topic import DataVersion

FILE_NAME = "consumerOffset.json"
SEPARATOR = "@"


class ConsumerOffsets:
    """Committed offsets by ``topic@group`` and queue id.

    :ivar data_version: the table's version; goes up every so many commits (`consumerOffsetUpdateVersionStep`).
    """

    _log = Logger()

    def __init__(
        self, config: BrokerConfig, files: IConfigFiles, now_ms: Callable[[], int]
    ) -> None:
        self._config = config
        self._now_ms = now_ms
        self._table: dict[str, dict[int, int]] = {}
        self._commits = 0
        self._is_changed = False
        self.data_version = DataVersion(timestamp=now_ms())
        self.file = PersistedTable(files, FILE_NAME, self._encode)

    def load(self) -> None:
        """Read ``consumerOffset.json``.

        :raises StoreError: the file is JSON but no offset table.
        """
        data = self.file.load()
        if data is None:
            return
        try:
            wrapper = decode_body(ConsumerOffsetSerializeWrapper, data)
        except BodyError as error:
            raise StoreError(f"{FILE_NAME} is no offset table: {error}") from error
        self._table = wrapper.offset_table or {}
        if wrapper.data_version is not None:
            self.data_version.assign(wrapper.data_version)

    def commit(self, group: str, topic: str, queue_id: int, offset: int, client: str) -> None:
        """Note where a group stands; going back is allowed (an operator's reset) and logged.

        :param client: who says so, for the log.
        """
        key = f"{topic}{SEPARATOR}{group}"
        queues = self._table.get(key)
        if queues is None:
            queues = self._table[key] = {}
        known = queues.get(queue_id)
        if known == offset:
            return
        queues[queue_id] = offset
        self._is_changed = True
        if known is not None and offset < known:
            self._log.warn(
                "{client} moves group {group} back in {topic} queue {queue_id}: {known} to {offset}",
                client=client,
                group=group,
                topic=topic,
                queue_id=queue_id,
                known=known,
                offset=offset,
            )
        self._commits += 1
        if self._commits % self._config.consumer_offset_update_version_step == 0:
            self.data_version.next(self._now_ms())

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset, -1 when there is none."""
        queues = self._table.get(f"{topic}{SEPARATOR}{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def of_group(self, group: str) -> Iterable[tuple[str, dict[int, int]]]:
        """The topics of a group, each with the offsets of its queues."""
        suffix = SEPARATOR + group
        for key, queues in self._table.items():
            if key.endswith(suffix):
                yield key[: -len(suffix)], queues

    def save_if_changed(self) -> None:
        """Save when something was committed since the last time."""
        if self._is_changed:
            self._is_changed = False
            self.file.changed()

    def save(self) -> Deferred[None]:
        """Save now; fires when it is on disk."""
        self._is_changed = False
        return self.file.save()

    def to_wrapper(self) -> ConsumerOffsetSerializeWrapper:
        """The table with its version, as it is copied and kept."""
        return ConsumerOffsetSerializeWrapper(
            offset_table=self._table, data_version=self.data_version
        )

    def _encode(self) -> bytes:
        return encode_body(self.to_wrapper())
