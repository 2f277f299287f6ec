"""Why does the store take no messages at the moment?"""

from __future__ import annotations

from twisted.logger import Logger


class WriteRefusals:
    """Causes for which sends are answered with SERVICE_NOT_AVAILABLE, each until it is gone.

    :ivar reasons: by cause, the text for people; empty when messages are taken.
    """

    log = Logger()

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    def add(self, cause: str, reason: str) -> None:
        """Take no messages until `remove` is called with the same cause."""
        if cause not in self.reasons:
            self.log.error("the store takes no messages: {reason}", reason=reason)
        self.reasons[cause] = reason

    def remove(self, cause: str) -> None:
        """A cause is gone."""
        if self.reasons.pop(cause, None) is not None and not self.reasons:
            self.log.info("the store takes messages again")
