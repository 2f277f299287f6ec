"""What can be set on a client? The official ``ClientConfig`` in snake_case, with its defaults.

One configuration stands for one client id: producers and consumers that are given the same object (or equal ``instance_name`` s on
purpose) share one `client.instance.ClientInstance`, with its connections, routes and heartbeats.
"""

from __future__ import annotations

import os
import time
from itertools import count
from typing import Any

import attrs

from txrocketmq.config.load import check_address, split_addresses
from txrocketmq.errors import MQClientError
from txrocketmq.model.message_id import own_address
from txrocketmq.model.names import with_namespace, without_namespace

DEFAULT_INSTANCE_NAME = "DEFAULT"
STREAM = "STREAM"

_numbers = count()
_KINDS = {"str": (str, "a text"), "bool": (bool, "True or False")} | dict.fromkeys(
    ("int", "float"), ((int, float), "a number")
)


def check_kinds(settings: Any) -> None:
    """Refuse texts for numbers and the like where they are set, not where they would be used.

    :param settings: of an attrs class.
    :raises MQClientError: naming the setting.
    """
    for field in attrs.fields(type(settings)):
        kind, words = _KINDS.get(str(field.type), (object, ""))
        value = getattr(settings, field.name)
        if not isinstance(value, kind):
            raise MQClientError(f"{field.name} must be {words}, not {value!r:.200}")


def check_least(settings: Any, least: int, *names: str) -> None:
    """Refuse numbers with which timed work would never rest, or fail where nobody looks.

    :raises MQClientError: naming the first setting that is smaller.
    """
    for name in names:
        value = getattr(settings, name)
        if not value >= least:
            raise MQClientError(f"{name} must be at least {least}, not {value}")


def check_class(name: str, value: object, wanted: Any) -> None:
    """Refuse settings of another role, and whatever else stands in their place.

    :raises MQClientError: saying of which class they must be.
    """
    if not isinstance(value, wanted):
        raise MQClientError(f"{name} must be a {wanted.__name__}, not {value!r:.200}")


def _namesrv_addr_of_environment() -> str:
    return os.environ.get("NAMESRV_ADDR", "")


@attrs.define(kw_only=True)
class ClientConfig:
    """Settings that all roles of one client id share. Times in ms.

    :ivar namesrv_addr: ``host:port`` of name servers, separated by ``;``; ``NAMESRV_ADDR`` of the environment when not given.
    :ivar ws_addr: an address server (``http://host:port/path``) that tells the name servers; asked where ``namesrv_addr`` is empty.
    :ivar instance_name: with ``DEFAULT`` every configuration gets a name of its own: process id and a time in ns.
    :ivar namespace: put before topics and groups on the way out (``namespace%name``), taken off on the way in.
    :ivar namespace_v2: said in the header of every request (``ns``, ``nsd``), where a proxy or broker keeps name spaces itself.
    :ivar poll_name_server_interval: how often routes are looked up.
    :ivar heartbeat_broker_interval: how often brokers are told that this client is alive.
    :ivar persist_consumer_offset_interval: how often consumers save their offsets.
    :ivar rebalance_interval: how often consumers divide their queues anew (official ``rocketmq.client.rebalance.waitInterval``).
    :ivar mq_client_api_timeout: for requests that have no time-out of their own.
    :ivar vip_channel_enabled: send through the brokers' second listener, port - 2.
    :ivar use_heartbeat_v2: leave subscriptions out of heartbeats where the broker knows them already.
    :ivar send_latency_enable: avoid brokers that were slow or failed (``sendLatencyFaultEnable``).
    :ivar start_detector_enable: ask avoided brokers in the background whether they are back.
    :ivar enable_stream_request_type: mark requests as those of a stream client; part of the client id.
    :ivar use_tls: speak TLS to name servers and brokers.
    :ivar tls_client_auth_server: refuse servers whose certificate is not that of their host, signed by a trusted authority.
    :ivar tls_client_trust_cert_path: the authority's certificate (PEM); the platform's authorities when empty.
    :ivar tls_client_cert_path: this client's own certificate (PEM), with its key in ``tls_client_key_path``.
    :ivar decode_read_body: read message bodies at all.
    :ivar decode_decompress_body: decompress bodies.
    :ivar client_async_semaphore_value: requests that may wait for an answer, all brokers together.
    """

    namesrv_addr: str = attrs.field(factory=_namesrv_addr_of_environment)
    ws_addr: str = ""
    client_ip: str = attrs.field(factory=own_address)
    instance_name: str = DEFAULT_INSTANCE_NAME
    unit_mode: bool = False
    unit_name: str = ""
    namespace: str = ""
    namespace_v2: str = ""
    poll_name_server_interval: int = 30_000
    heartbeat_broker_interval: int = 30_000
    persist_consumer_offset_interval: int = 5_000
    rebalance_interval: int = 20_000
    pull_time_delay_millis_when_exception: int = 1_000
    mq_client_api_timeout: int = 3_000
    vip_channel_enabled: bool = False
    use_heartbeat_v2: bool = False
    enable_heartbeat_channel_event_listener: bool = True
    send_latency_enable: bool = False
    start_detector_enable: bool = False
    detect_timeout: int = 200
    detect_interval: int = 2_000
    enable_stream_request_type: bool = False
    enable_trace: bool = False
    trace_topic: str = ""
    trace_msg_batch_num: int = 10
    use_tls: bool = False
    tls_client_auth_server: bool = False
    tls_client_trust_cert_path: str = ""
    tls_client_cert_path: str = ""
    tls_client_key_path: str = ""
    decode_read_body: bool = True
    decode_decompress_body: bool = True
    client_async_semaphore_value: int = 65_535
    _is_named: bool = attrs.field(init=False, default=True)

    def __attrs_post_init__(self) -> None:
        """Give an unnamed instance a name that no other has, in this process or in another container with the same pid.

        :raises MQClientError: a setting cannot be.
        """
        if self.instance_name == DEFAULT_INSTANCE_NAME:
            self._is_named = False
            self.instance_name = f"{os.getpid()}#{time.time_ns() + next(_numbers)}"
        check_kinds(self)
        check_least(self, 0, "pull_time_delay_millis_when_exception")
        check_least(
            self,
            1,
            "poll_name_server_interval",
            "heartbeat_broker_interval",
            "persist_consumer_offset_interval",
            "rebalance_interval",
            "mq_client_api_timeout",
            "detect_timeout",
            "detect_interval",
            "client_async_semaphore_value",
        )

    @property
    def client_id(self) -> str:
        """``ip@instance[@unit][@STREAM]``, as brokers see this client."""
        parts = [self.client_ip, self.instance_name]
        if self.unit_name.strip():
            parts.append(self.unit_name)
        if self.enable_stream_request_type:
            parts.append(STREAM)
        return "@".join(parts)

    @property
    def local_client_id(self) -> str:
        """The client id as the files of broadcasting consumers have it: an unnamed instance is ``DEFAULT`` there, whatever name it got
        for this run."""
        if self._is_named:
            return self.client_id
        return self.client_id.replace(f"@{self.instance_name}", f"@{DEFAULT_INSTANCE_NAME}", 1)

    def name_servers(self) -> list[str]:
        """The name servers of ``namesrv_addr``, each once.

        :raises MQClientError: one of them is no ``host:port``.
        """
        return check_name_servers(self.namesrv_addr)

    def with_namespace(self, name: str) -> str:
        """A topic or group as it is called on the wire."""
        return with_namespace(self.namespace, name) if self.namespace else name

    def without_namespace(self, name: str) -> str:
        """A topic or group of the wire as the application calls it."""
        return without_namespace(self.namespace, name) if self.namespace else name


def chosen_client(client: ClientConfig | None, namesrv_addr: str) -> ClientConfig:
    """The settings that a role is given: all of them, or just the name servers, or none.

    :raises MQClientError: something else is in their place, or they contradict one another.
    """
    if client is None:
        return ClientConfig(namesrv_addr=namesrv_addr) if namesrv_addr else ClientConfig()
    check_class("client", client, ClientConfig)
    if namesrv_addr and namesrv_addr != client.namesrv_addr:
        raise MQClientError(
            f"namesrv_addr={namesrv_addr!r} is short for a client of its own; with client= set it there:"
            " ClientConfig(namesrv_addr=...)"
        )
    return client


def check_name_servers(addresses: str) -> list[str]:
    """Addresses of a list ``a:1;b:2``, each once; blanks and empty parts do no harm.

    :raises MQClientError: one of them is no ``host:port``.
    """
    found = list(dict.fromkeys(split_addresses(addresses.replace(",", ";"))))
    for address in found:
        try:
            check_address("namesrvAddr", address)
        except Exception as error:
            raise MQClientError(str(error)) from None
    return found
