"""Which keys shape the network side? Official ``NettyServerConfig`` and ``NettyClientConfig``."""

from __future__ import annotations

import attrs

from txrocketmq.config.defaults import CPUS, TLS_WANTED
from txrocketmq.config.keys import flag, int32, int64, text


@attrs.define(kw_only=True, slots=False)
class NettyServerConfig:
    """Keys of the listening side."""

    bind_address: str = text(
        "0.0.0.0", "Address to listen on; `0.0.0.0` is every IPv4 one, `::` every one."
    )
    listen_port: int = int32(
        0,
        "TCP port to listen on: 9876 for a name server, 10911 for a broker. 0 lets the system choose.",
        low=0,
        high=65535,
    )
    server_worker_threads: int = int32(8, "Threads for codecs in the official server.")
    server_callback_executor_threads: int = int32(0, "Threads for answers in the official server.")
    server_selector_threads: int = int32(3, "Threads that watch sockets in the official server.")
    server_oneway_semaphore_value: int = int32(256, "One-way requests to clients in flight.")
    server_async_semaphore_value: int = int32(64, "Asynchronous requests to clients in flight.")
    server_channel_max_idle_time_seconds: int = int32(
        120, "Seconds of quiet after which a connection is closed."
    )
    server_socket_snd_buf_size: int = int32(
        0, "Bytes of the socket's send buffer; 0 leaves it to the system."
    )
    server_socket_rcv_buf_size: int = int32(
        0, "Bytes of the socket's receive buffer; 0 leaves it to the system."
    )
    write_buffer_high_water_mark: int = int32(
        0, "Unsent bytes of a connection at which reading from it stops; 0 means the built-in mark."
    )
    write_buffer_low_water_mark: int = int32(
        0, "Unsent bytes at which reading goes on; 0 means the built-in mark."
    )
    server_socket_backlog: int = int32(1024, "Connections that may wait to be accepted.")
    server_netty_worker_group_enable: bool = flag(True, "Use a thread group of its own for codecs.")
    server_pooled_byte_buf_allocator_enable: bool = flag(True, "Reuse network buffers.")
    enable_shutdown_gracefully: bool = flag(
        False, "Tell clients to go elsewhere before the server stops."
    )
    shutdown_wait_time_seconds: int = int32(30, "Seconds that it waits for them.")
    use_epoll_native_selector: bool = flag(False, "Use the native event notification of Linux.")


@attrs.define(kw_only=True, slots=False)
class NettyClientConfig:
    """Keys of the connecting side."""

    client_worker_threads: int = int32(4, "Threads for codecs in the official client.")
    client_callback_executor_threads: int = int32(
        CPUS, "Threads for answers in the official client."
    )
    client_oneway_semaphore_value: int = int32(65_535, "One-way requests in flight.")
    client_async_semaphore_value: int = int32(65_535, "Asynchronous requests in flight.")
    connect_timeout_millis: int = int32(3000, "Milliseconds that a connection attempt may take.")
    channel_not_active_interval: int = int64(
        60_000, "Milliseconds of quiet after which the official client looks at a connection."
    )
    is_scan_available_name_srv: bool = flag(
        True, "Look regularly which name servers can be reached.", alias="scanAvailableNameSrv"
    )
    client_channel_max_idle_time_seconds: int = int32(
        120, "Seconds of quiet after which a connection is closed."
    )
    client_socket_snd_buf_size: int = int32(
        0, "Bytes of the socket's send buffer; 0 leaves it to the system."
    )
    client_socket_rcv_buf_size: int = int32(
        0, "Bytes of the socket's receive buffer; 0 leaves it to the system."
    )
    client_pooled_byte_buf_allocator_enable: bool = flag(False, "Reuse network buffers.")
    client_close_socket_if_timeout: bool = flag(
        True, "Close a connection whose request was not answered in time."
    )
    use_tls: bool = flag(TLS_WANTED, "Speak TLS to servers.", name="useTLS")
    socks_proxy_config: str = text("{}", "Proxies by address, as JSON.")
    write_buffer_high_water_mark: int = int32(
        0, "Unsent bytes of a connection at which requests are refused; 0 means the built-in mark."
    )
    write_buffer_low_water_mark: int = int32(
        0, "Unsent bytes at which they are accepted again; 0 means the built-in mark."
    )
    disable_callback_executor: bool = flag(False, "Run answers on the network thread.")
    disable_netty_worker_group: bool = flag(False, "Use no thread group of its own for codecs.")
    max_reconnect_interval_time_seconds: int = int64(
        60, "Seconds between two attempts to reach a server that is away."
    )
    enable_reconnect_for_go_away: bool = flag(
        True, "Reconnect when a server says that it is going away."
    )
