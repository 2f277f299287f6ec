"""Which broker of its group is this one? The number that a controller gave it, in a file.

Stands for ``BrokerMetadata`` and ``TempBrokerMetadata``::

    <storePathBrokerIdentity>         cluster#broker name#id
    <storePathBrokerIdentity>-temp    cluster#broker name#id#check code, while the controller is asked for that id

Crash story: the temporary file is there before the controller is asked, so that a broker that is killed then asks for the same id with the same
code again, and does not take up two.
"""

from __future__ import annotations

from typing import NamedTuple

from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IDisk

_SEPARATOR = "#"


class Identity(NamedTuple):
    """Who a broker is.

    :ivar code: what the controller knows a first request by; empty once the id is given.
    """

    cluster: str
    name: str
    broker_id: int
    code: str = ""


class IdentityFile:
    """The two files."""

    def __init__(self, disk: IDisk, path: str) -> None:
        self._disk = disk
        self.path = path

    def load(self, cluster: str, name: str) -> Identity | None:
        """What is known of this broker: its identity, or the one it was about to ask for (with a code); None for a new one.

        :raises StoreError: a file belongs to another broker, or cannot be read.
        """
        for path, parts in ((self.path, 3), (self._temporary, 4)):
            if not self._disk.exists(path):
                continue
            words = self._disk.read_file(path).decode("utf-8", "replace").strip().split(_SEPARATOR)
            if len(words) != parts or not words[2].isdecimal():
                raise StoreError(f"{path} does not say who this broker is")
            if (words[0], words[1]) != (cluster, name):
                raise StoreError(
                    f"{path} belongs to broker {words[1]} of {words[0]}, this is {name} of {cluster}"
                )
            return Identity(words[0], words[1], int(words[2]), *words[3:])
        return None

    @property
    def _temporary(self) -> str:
        return f"{self.path}-temp"

    def ask(self, identity: Identity) -> None:
        """Note an id before the controller is asked for it.

        :raises StoreError: the disk refuses.
        """
        self._write(self._temporary, identity)

    def refused(self) -> None:
        """Somebody else has that id."""
        self._disk.remove(self._temporary)

    def given(self, identity: Identity) -> Identity:
        """The controller gave the id.

        :raises StoreError: the disk refuses.
        """
        found = identity._replace(code="")
        self._write(self.path, found)
        self._disk.remove(self._temporary)
        return found

    def _write(self, path: str, identity: Identity) -> None:
        words = [identity.cluster, identity.name, str(identity.broker_id), identity.code]
        text = _SEPARATOR.join(words if identity.code else words[:3])
        try:
            self._disk.replace_file(path, text.encode(), False)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error}") from error
