"""How fast does the log flow over a link, and how fast may it?

Stands for ``FlowMonitor``. Officially the limit counts the headers alone; here it counts what it says it does, all bytes sent.
"""

from __future__ import annotations

from txrocketmq.config.schema import MessageStoreConfig

UNLIMITED = 2**31 - 1


class FlowMeter:
    """Bytes of the present second and of the last one. `tick` is called once a second."""

    def __init__(self, config: MessageStoreConfig) -> None:
        self._config = config
        self._now = 0
        self.bytes_per_second = 0

    def count(self, size: int) -> None:
        """So many bytes went over the link."""
        self._now += size

    def allowance(self) -> int:
        """How many bytes may still be sent in this second (`haFlowControlEnable`, `maxHaTransferByteInSecond`)."""
        config = self._config
        if not config.ha_flow_control_enable:
            return UNLIMITED
        return max(0, config.max_ha_transfer_byte_in_second - self._now)

    def tick(self) -> None:
        """A second is over."""
        self.bytes_per_second, self._now = self._now, 0
