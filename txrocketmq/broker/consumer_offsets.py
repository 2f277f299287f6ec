"""Where does each consumer group stand in each queue?

Stands for ``ConsumerOffsetManager`` and ``LmqConsumerOffsetManager``: kept in ``consumerOffset.json``, saved every five seconds and at stop. Crash story: a crash
forgets at most the last period, so its messages are delivered again; offsets never move past what was consumed.

Besides the committed offsets, and in memory only: how far each group pulled, and offsets that an operator set and the group's next
pull of the queue has to take over (`useServerSideResetOffset`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.logger import Logger

from txrocketmq.broker.config_files import PersistedTable, SavedInTurns
from txrocketmq.codec.bodies import ConsumerOffsetSerializeWrapper, decode_body, encode_body
from txrocketmq.codec.bodies.offsets import LmqConsumerOffsetSerializeWrapper
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.interfaces import IConfigFiles
from txrocketmq.model.names import CID_SYS_RMQ_TRANS, LMQ_QUEUE_ID, REVIVE_GROUP, is_lmq
from txrocketmq.model.topic import DataVersion

FILE_NAME = "consumerOffset.json"
LIGHT_FILE_NAME = "lmqConsumerOffset.json"
"""Used instead with ``enableLmq``, as officially."""
SEPARATOR = "@"
_ONLY_FORWARD = (CID_SYS_RMQ_TRANS, REVIVE_GROUP)


class ConsumerOffsets(SavedInTurns):
    """Committed offsets by ``topic@group`` and queue id.

    :param light: groups may be those of light queues (``enableLmq``).
    :ivar data_version: the table's version; goes up every so many commits (`consumerOffsetUpdateVersionStep`).
    """

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        files: IConfigFiles,
        now_ms: Callable[[], int],
        *,
        light: bool = False,
    ) -> None:
        self._files = files
        self._is_light = light
        self._config = config
        self._now_ms = now_ms
        self._table: dict[str, dict[int, int]] = {}
        self._pulled: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        # Which keys of the table belong together, so that nobody has to look at all of them.
        self._topics_of: dict[str, dict[str, None]] = {}
        self._groups_of: dict[str, dict[str, None]] = {}
        # Keys that are of no group by itself, as those of broadcasting clients (``topic@group@broadcast``): listed nowhere.
        self._unlisted: dict[str, None] = {}
        self._commits = 0
        self.data_version = DataVersion(timestamp=now_ms())
        self.file = PersistedTable(files, LIGHT_FILE_NAME if light else FILE_NAME, self._encode)

    def load(self) -> None:
        """Read the file; where there is none for light queues yet, the one without them.

        :raises StoreError: neither the file nor its backup can be read.
        """
        wrapper = self._load_light() if self._is_light else None
        if wrapper is None:
            plain = partial(decode_body, ConsumerOffsetSerializeWrapper)
            wrapper = self._files.load(FILE_NAME, plain)
        if wrapper is None:
            return
        self._table = wrapper.offset_table or {}
        for key in self._table:
            self._enter(key)
        if wrapper.data_version is not None:
            self.data_version.assign(wrapper.data_version)

    def _load_light(self) -> ConsumerOffsetSerializeWrapper | None:
        found = self.file.load(partial(decode_body, LmqConsumerOffsetSerializeWrapper))
        if found is None:
            return None
        table = found.offset_table or {}
        for key, offset in (found.lmq_offset_table or {}).items():
            table[key] = {LMQ_QUEUE_ID: offset}
        return ConsumerOffsetSerializeWrapper(offset_table=table, data_version=found.data_version)

    def commit(self, group: str, topic: str, queue_id: int, offset: int, client: str) -> None:
        """Note where a group stands; going back is allowed (an operator's reset) and logged.

        :param client: who says so, for the log.
        """
        key = f"{topic}{SEPARATOR}{group}"
        queues = self._table.get(key)
        if queues is None:
            queues = self._table[key] = {}
            self._enter(key)
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

    # ----------------------------------------------------------------- what was pulled

    def note_pull(self, key: str, queue_id: int, next_offset: int) -> None:
        """A group was handed messages up to an offset.

        :param key: ``topic@group``.
        """
        queues = self._pulled.get(key)
        if queues is None:
            queues = self._pulled[key] = {}
        queues[queue_id] = next_offset

    def query_pulled(self, group: str, topic: str, queue_id: int) -> int:
        """The offset behind the last message handed out since the start; -1 when there was none."""
        queues = self._pulled.get(f"{topic}{SEPARATOR}{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    # ----------------------------------------------------------------- resets

    def reset(self, group: str, topic: str, queue_id: int, offset: int, client: str) -> None:
        """Set a group's offset and keep it against the group's own commits until its next pull of the queue."""
        key = f"{topic}{SEPARATOR}{group}"
        self._resets.setdefault(key, {})[queue_id] = offset
        self.commit(group, topic, queue_id, offset, client)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset waits for the group's next pull."""
        if not self._resets:
            return False
        return queue_id in self._resets.get(f"{topic}{SEPARATOR}{group}", ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that the group's pull has to go on at; None when nothing was reset. It is told once."""
        if not self._resets:
            return None
        key = f"{topic}{SEPARATOR}{group}"
        queues = self._resets.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        return offset

    # ----------------------------------------------------------------- several at once

    def topics_of(self, group: str) -> list[str]:
        """The topics of which a group has offsets."""
        return list(self._topics_of.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have offsets of a topic."""
        return list(self._groups_of.get(topic, ()))

    def queues_of(self, group: str, topic: str) -> dict[int, int]:
        """A group's offsets of one topic by queue id; not to be changed."""
        return self._table.get(f"{topic}{SEPARATOR}{group}", {})

    def remove_topic(self, topic: str) -> None:
        """Forget all that is known of a topic."""
        self._remove([f"{topic}{SEPARATOR}{group}" for group in self.groups_of(topic)])
        self._remove_unlisted(lambda key: key.startswith(topic + SEPARATOR))
        self._forget(lambda key: key.startswith(topic + SEPARATOR))

    def remove_group(self, group: str) -> None:
        """Forget all that is known of a group."""
        self._remove([f"{topic}{SEPARATOR}{group}" for topic in self.topics_of(group)])
        self._remove_unlisted(lambda key: SEPARATOR + group + SEPARATOR in key)
        self._forget(lambda key: key.endswith(SEPARATOR + group))

    def clone(self, source: str, target: str, topic: str) -> None:
        """Let a group stand where another one stands in a topic; nothing when that one has no offsets there."""
        queues = self._table.get(f"{topic}{SEPARATOR}{source}")
        if queues is None:
            return
        key = f"{topic}{SEPARATOR}{target}"
        self._table[key] = dict(queues)
        self._enter(key)
        self._is_changed = True

    def _enter(self, key: str) -> None:
        topic, separator, group = key.partition(SEPARATOR)
        if separator and topic and group and SEPARATOR not in group:
            self._topics_of.setdefault(group, {})[topic] = None
            self._groups_of.setdefault(topic, {})[group] = None
        else:
            self._unlisted[key] = None

    def _remove(self, keys: list[str]) -> None:
        for key in keys:
            self._log.warn(
                "offsets of {key} removed: {queues}", key=key, queues=self._table.pop(key, None)
            )
            topic, _, group = key.partition(SEPARATOR)
            for table, owner, member in (
                (self._topics_of, group, topic),
                (self._groups_of, topic, group),
            ):
                table[owner].pop(member, None)
                if not table[owner]:
                    del table[owner]
            self._is_changed = True

    def _remove_unlisted(self, is_doomed: Callable[[str], bool]) -> None:
        for key in [key for key in self._unlisted if is_doomed(key)]:
            del self._unlisted[key]
            queues = self._table.pop(key, None)
            self._log.warn("offsets of {key} removed: {queues}", key=key, queues=queues)
            self._is_changed = True

    def _forget(self, is_doomed: Callable[[str], bool]) -> None:
        for table in (self._pulled, self._resets):
            for key in [key for key in table if is_doomed(key)]:
                del table[key]

    def take_over(self, wrapper: ConsumerOffsetSerializeWrapper) -> None:
        """A slave: stand where the master says; groups and topics that it does not name stay as they are, as officially."""
        for key, queues in (wrapper.offset_table or {}).items():
            if self._table.get(key) != queues:
                self._table[key] = queues
                self._enter(key)
                self._is_changed = True
        if wrapper.data_version is not None:
            self.data_version.assign(wrapper.data_version)

    def stay_within(self, end_of: Callable[[str, int], int | None]) -> None:
        """A broker that becomes master: who stands behind what is stored stands at its end.

        A slave knows its master's offsets every ten seconds, and a log may have lost its end to a power failure; what is stored there
        from now on is another message, which must not be skipped.

        :param end_of: topic and queue to the next offset; None where it is not known.
        """
        for key, queues in self._table.items():
            topic = key.partition(SEPARATOR)[0]
            for queue_id, offset in queues.items():
                end = end_of(topic, queue_id) if offset > 0 else None
                if end is None or offset <= end:
                    continue
                self._log.warn(
                    "{key} stood at {offset} in queue {queue_id}, which ends at {end}: it stands there now",
                    key=key,
                    offset=offset,
                    queue_id=queue_id,
                    end=end,
                )
                queues[queue_id] = end
                self._is_changed = True

    def take_back(self, wrapper: ConsumerOffsetSerializeWrapper) -> None:
        """A master that comes back: stand where groups stand at a slave that served in its place.

        The slave's table counts, as officially, unless this one's version is newer. Versions count every 500 commits only, so then each group
        stands at the farther of both offsets, and so do at any time the broker's own groups, which only go forward: what they are
        past is done.
        """
        version = wrapper.data_version
        is_older = version is None or self.data_version.is_newer_than(version)
        for key, queues in (wrapper.offset_table or {}).items():
            known = self._table.get(key, {})
            if is_older or key.partition(SEPARATOR)[2] in _ONLY_FORWARD:
                queues = {q: max(offset, known.get(q, offset)) for q, offset in queues.items()}
            merged = {**known, **queues} if known else queues
            if merged != known:
                self._table[key] = merged
                self._enter(key)
                self._is_changed = True
        if version is not None and not is_older:
            self.data_version.assign(version)

    def to_wrapper(self) -> ConsumerOffsetSerializeWrapper:
        """The table with its version, as it is copied and kept."""
        return ConsumerOffsetSerializeWrapper(
            offset_table=self._table, data_version=self.data_version
        )

    def _encode(self) -> bytes:
        if not self._is_light:
            return encode_body(self.to_wrapper())
        light = {
            key: queues[LMQ_QUEUE_ID]
            for key, queues in self._table.items()
            if LMQ_QUEUE_ID in queues and is_lmq(key.partition(SEPARATOR)[2])
        }
        return encode_body(
            LmqConsumerOffsetSerializeWrapper(
                data_version=self.data_version,
                lmq_offset_table=light,
                offset_table={
                    key: queues for key, queues in self._table.items() if key not in light
                },
            )
        )
