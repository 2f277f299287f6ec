"""Which bounds does a connection keep? Every limit of the remoting room with its name, unit and official key.

Official counterparts: ``NettyServerConfig``, ``NettyClientConfig``, ``NettySystemConfig``, ``NettyDecoder.FRAME_MAX_LENGTH``.
"""

from __future__ import annotations

import attrs

from txrocketmq.config.schema import NettyClientConfig, NettyServerConfig

DEFAULT_HIGH_WATER_BYTES = 1024 * 1024
"""Unsent bytes at which a peer is no longer read when the configuration says 0.

The official default is 64 KiB; one pull answer alone may have 256 KiB, and each stop and start of reading costs two system calls.
"""


@attrs.define(kw_only=True)
class RemotingLimits:
    """Bounds of the connections of one listening port or of one client."""

    max_frame_bytes: int = 16 * 1024 * 1024
    """Longest frame, without its own length field (official ``com.rocketmq.remoting.frameMaxLength``)."""

    high_water_bytes: int = DEFAULT_HIGH_WATER_BYTES
    """Unsent bytes beyond which a connection is not read until they are gone (``writeBufferHighWaterMark``)."""

    idle_s: float = 120
    """Seconds without a byte in either direction after which a connection is closed; 0 means never."""

    max_connections: int = 65_000
    """Connections of one port; further ones are closed at once."""

    max_unfinished_bytes: int = 64 * 1024 * 1024
    """Bytes of frames that are not whole yet, of all connections together. Beyond it, whoever brings more of such a frame is not
    read for a while."""

    unfinished_s: float = 1
    """Seconds that a frame may take to become whole while others wait for its memory; one that takes longer is given up."""

    max_unsent_bytes: int = 256 * 1024 * 1024
    """Bytes that peers leave unread, all connections together. Beyond it, those that are behind for long are cut."""

    unread_s: float = 10
    """Seconds with over 64 KiB unsent, and never all gone, after which a connection counts as not being read."""

    max_unanswered: int = 4096
    """Requests of one peer that wait for a deferred answer (held pulls not counted); beyond it the peer is not read."""

    max_requests: int = 65_535
    """Requests of ours that wait for an answer: per client, or per connection of a server
    (``clientAsyncSemaphoreValue``, ``serverAsyncSemaphoreValue``)."""

    connect_timeout_s: float = 3
    """Seconds that one attempt to connect may take, all addresses of the host together (``connectTimeoutMillis``)."""

    close_grace_s: float = 5
    """Seconds that a closed connection may take to get rid of its unsent bytes before it is cut."""

    backoff_first_s: float = 0.1
    """Longest wait after the first failed attempt to connect; doubles with each further one."""

    backoff_max_s: float = 10
    """Longest wait between two attempts."""

    close_when_silent: bool = False
    """Close a connection on which a request ran out of time while nothing at all was heard (``clientCloseSocketIfTimeout``)."""

    @classmethod
    def for_server(cls, config: NettyServerConfig) -> RemotingLimits:
        """The bounds that the official keys of the listening side ask for."""
        return cls(
            high_water_bytes=config.write_buffer_high_water_mark or DEFAULT_HIGH_WATER_BYTES,
            idle_s=config.server_channel_max_idle_time_seconds,
        )

    @classmethod
    def for_client(cls, config: NettyClientConfig) -> RemotingLimits:
        """The bounds that the official keys of the connecting side ask for."""
        longest = float(config.max_reconnect_interval_time_seconds)
        return cls(
            high_water_bytes=config.write_buffer_high_water_mark or DEFAULT_HIGH_WATER_BYTES,
            idle_s=config.client_channel_max_idle_time_seconds,
            max_requests=config.client_async_semaphore_value,
            connect_timeout_s=config.connect_timeout_millis / 1000,
            backoff_max_s=min(longest, cls().backoff_max_s),
            close_when_silent=config.client_close_socket_if_timeout,
        )
