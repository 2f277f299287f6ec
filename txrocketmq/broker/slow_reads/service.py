"""Limits for cold reads and for slow consumers, as one feature of a broker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from twisted.logger import Logger

from txrocketmq.broker.feature import Feature
from txrocketmq.broker.slow_reads.watch import PERIOD_S, ReadWatch
from txrocketmq.broker.sweep import Sweep
from txrocketmq.errors import ResponseError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.remoting.dispatch import Reply, Request

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore

PROTECT_S = 180.0
"""How often slow groups are looked for, as officially."""
_MAX_LIMITS = 10_000
READ_AHEAD_MODE = "READ_AHEAD_MODE"
MODE_NORMAL, MODE_RANDOM = 0, 1
"""The system's own numbers for ``madvise``, which the request has."""


class SlowReads(Feature):
    """Serves the requests about cold reads, and switches slow groups off."""

    _log = Logger()

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._sweeps: list[Sweep] = []
        self.watch = ReadWatch(
            core.config,
            core.store_config,
            core.store,
            core.consumers,
            core.now_ms,
            core.pull.answer_again,
        )
        core.pull.watch = self.watch

    def handlers(self) -> Mapping[str, object]:
        """See `IBrokerFeature`."""
        return {"slow_reads": self}

    def start(self) -> None:
        """See `IBrokerFeature`."""
        clock = self._core.clock
        self._sweeps = [
            Sweep(clock, PERIOD_S, self.watch.begin_period),
            Sweep(clock, PROTECT_S, self._protect),
        ]

    def stop(self) -> None:
        """See `IBrokerFeature`."""
        for sweep in self._sweeps:
            sweep.stop()
        self.watch.answer_held()

    def group_deleted(self, group: str) -> None:
        """See `IBrokerFeature`."""
        self.watch.forget(group)
        self.watch.limits.pop(group, None)

    def _protect(self) -> None:
        """Switch groups off that are too far behind (`disableConsumeIfConsumerReadSlowly`); operators switch them on again."""
        groups = self._core.groups
        for name, behind in self.watch.too_slow().items():
            group = groups.get(name)
            if group is not None and group.consume_enable:
                groups.update(msgspec.structs.replace(group, consume_enable=False))
                self._log.warn(
                    "the consumer [{group}] consumes slowly, it is {behind} bytes behind: switched off",
                    group=name,
                    behind=behind,
                )
            self.watch.forget(name)

    def set_read_mode(self, request: Request[None]) -> Reply:
        """SET_COMMITLOG_READ_MODE: whether the system may read the commit log ahead (`dataReadAheadEnable`)."""
        if not request.ext_fields:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode param error"
            )
        text = request.ext_fields.get(READ_AHEAD_MODE, "")
        if not text.lstrip("+-").isdecimal():
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode failed")
        mode = int(text)
        if mode not in (MODE_NORMAL, MODE_RANDOM):
            raise ResponseError(
                ResponseCode.INVALID_PARAMETER, "set commitlog readahead mode param value error"
            )
        is_on = mode == MODE_NORMAL
        self._core.store_config.data_read_ahead_enable = is_on
        self._core.upkeep.set_read_ahead(is_on)
        self._log.info(
            "{client} switched reading ahead of the log {way}",
            client=request.connection.remote_text,
            way="on" if is_on else "off",
        )
        return Reply(remark=f"set commitlog readahead mode success, mode: {mode}")

    def update_limits(self, request: Request[None]) -> Reply:
        """UPDATE_COLD_DATA_FLOW_CTR_CONFIG: ``group=bytes`` a line. All of them, or none when one cannot be read."""
        limits: dict[str, int] = {}
        for line in request.body.decode("utf-8", "replace").splitlines():
            group, _, text = (part.strip() for part in line.partition("="))
            if not group or group.startswith(("#", "!")):
                continue
            try:
                limits[group] = int(text)
            except ValueError:
                raise ResponseError(
                    ResponseCode.INVALID_PARAMETER,
                    f"the threshold {text!r} of group {group} is no number of bytes",
                ) from None
        if len(limits.keys() | self.watch.limits.keys()) > _MAX_LIMITS:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"{_MAX_LIMITS} groups have a limit, that is the most"
            )
        self.watch.limits.update(limits)
        self._log.info(
            "{client} set limits for cold reads: {limits}",
            client=request.connection.remote_text,
            limits=limits,
        )
        return Reply()

    def remove_limit(self, request: Request[None]) -> Reply:
        """REMOVE_COLD_DATA_FLOW_CTR_CONFIG: the group that is the body has the usual limit again."""
        self.watch.limits.pop(request.body.decode("utf-8", "replace").strip(), None)
        return Reply()

    def limits_info(self, request: Request[None]) -> Reply:
        """GET_COLD_DATA_FLOW_CTR_INFO: what groups read cold in this period, and what they may."""
        watch, config = self.watch, self._core.config
        found = {
            "runtimeTable": {
                group: {
                    "coldAcc": cold.read_bytes,
                    "createTimeMills": cold.created_ms,
                    "lastColdReadTimeMills": cold.last_read_ms,
                }
                for group, cold in watch.cold.items()
            },
            "configTable": watch.limits,
            "cgColdReadThreshold": config.cg_cold_read_threshold,
            "globalColdReadThreshold": config.global_cold_read_threshold,
            "globalAcc": watch.cold_bytes,
        }
        return Reply(body=json.dumps(found, separators=(",", ":")).encode())
