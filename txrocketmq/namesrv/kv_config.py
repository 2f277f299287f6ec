"""What do operators keep in the name server's key-value table? Stands for ``KVConfigManager``.

Namespaces of keys; ``ORDER_TOPIC_CONFIG`` holds the queues of ordered topics by topic. Kept in ``kvConfig.json`` as officially.
Crash story: the file is replaced whole by `IConfigFiles`; a change that was answered may be lost if the machine stops within
the time of one write.
"""

from __future__ import annotations

from functools import partial
from typing import cast

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.codec.bodies.tables import KVConfigSerializeWrapper, KVTable
from txrocketmq.codec.bodies.wire import decode_body, encode_body
from txrocketmq.interfaces import IConfigFiles
from txrocketmq.model.names import NAMESPACE_ORDER_TOPIC_CONFIG


class KVConfig:
    """The table and its file.

    :param files: where the file lies.
    :param file_name: its name there.
    """

    _log = Logger()

    def __init__(self, files: IConfigFiles, file_name: str = "kvConfig.json") -> None:
        self._files = files
        self._file_name = file_name
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file.

        :raises StoreError: neither it nor its backup can be read.
        """
        wrapper = cast(
            "KVConfigSerializeWrapper | None",
            self._files.load(self._file_name, partial(decode_body, KVConfigSerializeWrapper)),
        )
        if wrapper is not None:
            self._table = wrapper.config_table or {}

    def get(self, namespace: str, key: str) -> str | None:
        """A value, None when there is none."""
        return self._table.get(namespace, {}).get(key)

    def put(self, namespace: str, key: str, value: str) -> Deferred[None]:
        """Set a value; fires when it is on disk."""
        self._table.setdefault(namespace, {})[key] = value
        return self._save()

    def delete(self, namespace: str, key: str) -> Deferred[None]:
        """Take a key out; fires when that is on disk. The namespace stays."""
        self._table.get(namespace, {}).pop(key, None)
        return self._save()

    def encoded_namespace(self, namespace: str) -> bytes | None:
        """A namespace as a ``KVTable`` body; None when it never held a key."""
        table = self._table.get(namespace)
        return None if table is None else encode_body(KVTable(table=table))

    def order_of_topic(self, topic: str) -> str | None:
        """The queues of an ordered topic, ``broker:queues;...``."""
        return self.get(NAMESPACE_ORDER_TOPIC_CONFIG, topic)

    def _save(self) -> Deferred[None]:
        data = encode_body(KVConfigSerializeWrapper(config_table=self._table))
        saving = cast("Deferred[None]", self._files.save(self._file_name, data))
        return saving.addErrback(self._not_saved)

    def _not_saved(self, failure: Failure) -> None:
        self._log.error(
            "{name} could not be saved: {reason}",
            name=self._file_name,
            reason=failure.getErrorMessage(),
        )
