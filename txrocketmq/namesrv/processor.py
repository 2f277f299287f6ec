"""What does a name server answer? One method for each operation of `txrocketmq.namesrv.operations`.

Stands for ``DefaultRequestProcessor`` and ``ClientRequestProcessor``; the remarks are the official ones.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from txrocketmq.codec.bodies.controller import GetBrokerMemberGroupResponseBody
from txrocketmq.codec.bodies.registration import (
    RegisteredBody,
    RegisteredTable,
    decode_registered,
    register_body_crc32,
)
from txrocketmq.codec.bodies.routes import ClusterInfo, encode_route
from txrocketmq.codec.bodies.tables import TopicList
from txrocketmq.codec.bodies.wire import decode_body, encode_body
from txrocketmq.codec.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    BrokerHeartbeatRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from txrocketmq.config.schema import NamesrvConfig
from txrocketmq.errors import ResponseError
from txrocketmq.model.codes import V4_9_4, ResponseCode
from txrocketmq.model.flags import TOPIC_UNIT, TOPIC_UNIT_SUB
from txrocketmq.model.names import MASTER_ID, NAMESPACE_ORDER_TOPIC_CONFIG
from txrocketmq.model.route import BrokerMemberGroup, TopicRouteData
from txrocketmq.model.topic import DataVersion
from txrocketmq.namesrv.kv_config import KVConfig
from txrocketmq.namesrv.members import Registration
from txrocketmq.namesrv.route_table import RouteTable
from txrocketmq.namesrv.route_views import (
    ZONE_NAME_FIELD,
    keep_zone,
    show_acting_masters,
    wanted_zone,
)
from txrocketmq.remoting.dispatch import Reply, Request

#: First byte of every zlib stream; JSON never begins with it.
_ZLIB_START = b"x"

_SYSTEM_ERROR = int(ResponseCode.SYSTEM_ERROR)
_TOPIC_NOT_EXIST = int(ResponseCode.TOPIC_NOT_EXIST)
_QUERY_NOT_FOUND = int(ResponseCode.QUERY_NOT_FOUND)
_STRICT_FROM = int(V4_9_4)

_NO_ROUTE = (
    "No topic route info in name server for the topic: {topic}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)


def _now_ms(clock: IReactorTime) -> int:
    return int(clock.seconds() * 1000)


class RouteRequests:
    """Questions of clients: where does a topic live?"""

    def __init__(
        self, config: NamesrvConfig, table: RouteTable, kv: KVConfig, clock: IReactorTime
    ) -> None:
        self._config = config
        self._table = table
        self._kv = kv
        self._clock = clock
        self._started_at = clock.seconds()

    def get_route(self, request: Request[GetRouteInfoRequestHeader]) -> Reply:
        """GET_ROUTEINFO_BY_TOPIC: standard JSON for callers that can only read that, the dialect for older ones."""
        config = self._config
        if (
            config.need_wait_for_service
            and self._clock.seconds() - self._started_at < config.wait_seconds_for_service
        ):
            raise ResponseError(_SYSTEM_ERROR, "name server not ready")
        header = request.header
        route = self._table.pick_route(header.topic)
        if route is None:
            raise ResponseError(_TOPIC_NOT_EXIST, _NO_ROUTE.format(topic=header.topic))
        if config.order_message_enable:
            route.order_topic_conf = self._kv.order_of_topic(header.topic)
        if config.support_acting_master:
            show_acting_masters(header.topic, route)
        zone = wanted_zone(request.ext_fields)
        if zone is not None:
            keep_zone(route, zone)
        strict = request.version >= _STRICT_FROM or bool(header.accept_standard_json_only)
        return Reply(body=encode_route(route, strict=strict))


class BrokerRequests:
    """What brokers say of themselves."""

    _log = Logger()

    def __init__(
        self, config: NamesrvConfig, table: RouteTable, kv: KVConfig, clock: IReactorTime
    ) -> None:
        self._config = config
        self._table = table
        self._kv = kv
        self._clock = clock

    def register_broker(self, request: Request[RegisterBrokerRequestHeader]) -> Reply:
        """REGISTER_BROKER, in any of the body's three forms."""
        header = request.header
        if header.body_crc32 and register_body_crc32(request.body) != header.body_crc32:
            self._log.warn(
                "registration of {name} from {peer}: the body does not have its checksum",
                name=header.broker_name,
                peer=request.connection.remote_text,
            )
            raise ResponseError(_SYSTEM_ERROR, "crc32 not match")
        self._table.drop_topics_not_named = self._config.delete_topic_with_broker_registration
        welcome = self._table.register(self._registration(request), _now_ms(self._clock))
        if welcome is None:
            raise ResponseError(_SYSTEM_ERROR, "register broker failed")
        body = b""
        if self._config.return_order_topic_config_to_broker:
            body = self._kv.encoded_namespace(NAMESPACE_ORDER_TOPIC_CONFIG) or b""
        return Reply(
            header=RegisterBrokerResponseHeader(
                ha_server_addr=welcome.ha_address, master_addr=welcome.master_address
            ),
            body=body,
        )

    def _registration(self, request: Request[RegisterBrokerRequestHeader]) -> Registration:
        header = request.header
        mark = hash((request.body, header.compressed, request.version))
        known = None
        if header.broker_id == MASTER_ID:
            known = self._table.repeated_version(
                header.cluster_name, header.broker_addr, header.broker_name, mark
            )
        # Most registrations repeat the one before: half a minute went by, and no topic is new.
        body = _nothing_new(known) if known is not None else _read_registration(request)
        wrapper = body.topic_config_serialize_wrapper
        return Registration(
            cluster=header.cluster_name,
            address=header.broker_addr,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            ha_address=header.ha_server_addr,
            version=wrapper.data_version,
            topics=wrapper.topic_config_table,
            filter_servers=None if known is not None else body.filter_server_list,
            mappings=wrapper.topic_queue_mapping_info_map,
            zone=request.ext_fields.get(ZONE_NAME_FIELD),
            expiry_ms=header.heartbeat_timeout_millis,
            acting_master=header.enable_acting_master,
            link=request.connection,
            body_mark=mark,
        )

    def unregister_broker(self, request: Request[UnRegisterBrokerRequestHeader]) -> Reply:
        """UNREGISTER_BROKER."""
        header = request.header
        self._table.unregister(header.cluster_name, header.broker_addr, header.broker_name)
        return Reply()

    def query_data_version(self, request: Request[QueryDataVersionRequestHeader]) -> Reply:
        """QUERY_DATA_VERSION: does the broker's topic table differ from what is known? A sign of life, too."""
        header = request.header
        version = decode_body(DataVersion, request.body)
        cluster, address = header.cluster_name, header.broker_addr
        changed = self._table.is_changed(cluster, address, version)
        self._table.refresh(cluster, address, _now_ms(self._clock))
        known = self._table.known_version(cluster, address)
        return Reply(
            header=QueryDataVersionResponseHeader(changed=changed),
            body=b"" if known is None else encode_body(known),
        )

    def broker_heartbeat(self, request: Request[BrokerHeartbeatRequestHeader]) -> Reply:
        """BROKER_HEARTBEAT: a sign of life and nothing else."""
        header = request.header
        self._table.refresh(header.cluster_name, header.broker_addr, _now_ms(self._clock))
        return Reply()

    def register_topic(self, request: Request[RegisterTopicRequestHeader]) -> Reply:
        """REGISTER_TOPIC_IN_NAMESRV: the queues of one topic."""
        if request.body:
            route = decode_body(TopicRouteData, request.body)
            self._table.set_topic_queues(request.header.topic, route.queue_datas)
        return Reply()


def _read_registration(request: Request[RegisterBrokerRequestHeader]) -> RegisteredBody:
    if not request.body:
        return RegisteredBody()
    # Brokers of 5.4.0 with compressedRegister=true compress and say that they did not.
    compressed = request.header.compressed or request.body.startswith(_ZLIB_START)
    return decode_registered(request.body, compressed=compressed, version=request.version)


def _nothing_new(version: DataVersion) -> RegisteredBody:
    return RegisteredBody(topic_config_serialize_wrapper=RegisteredTable(data_version=version))


class AdminRequests:
    """Questions and commands of operators about brokers and topics."""

    def __init__(self, config: NamesrvConfig, table: RouteTable) -> None:
        self._config = config
        self._table = table

    def get_broker_cluster_info(self, request: Request[None]) -> Reply:
        """GET_BROKER_CLUSTER_INFO."""
        info = ClusterInfo(
            broker_addr_table=self._table.brokers(), cluster_addr_table=self._table.clusters()
        )
        return Reply(body=encode_body(info))

    def get_broker_member_group(self, request: Request[GetBrokerMemberGroupRequestHeader]) -> Reply:
        """GET_BROKER_MEMBER_GROUP."""
        header = request.header
        broker = self._table.brokers().get(header.broker_name)
        group = BrokerMemberGroup(
            broker_addrs={} if broker is None else broker.broker_addrs,
            broker_name=header.broker_name,
            cluster=header.cluster_name,
        )
        return Reply(body=encode_body(GetBrokerMemberGroupResponseBody(broker_member_group=group)))

    def wipe_write_permission(self, request: Request[WipeWritePermOfBrokerRequestHeader]) -> Reply:
        """WIPE_WRITE_PERM_OF_BROKER: how many topics it concerned."""
        count = self._table.wipe_write_permission(request.header.broker_name)
        return Reply(header=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

    def add_write_permission(self, request: Request[AddWritePermOfBrokerRequestHeader]) -> Reply:
        """ADD_WRITE_PERM_OF_BROKER: how many topics it concerned."""
        count = self._table.add_write_permission(request.header.broker_name)
        return Reply(header=AddWritePermOfBrokerResponseHeader(add_topic_count=count))

    def delete_topic(self, request: Request[DeleteTopicFromNamesrvRequestHeader]) -> Reply:
        """DELETE_TOPIC_IN_NAMESRV, in one cluster or everywhere."""
        self._table.delete_topic(request.header.topic, request.header.cluster_name)
        return Reply()

    def get_all_topics(self, request: Request[None]) -> Reply:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
        if not self._config.enable_all_topic_list:
            raise ResponseError(_SYSTEM_ERROR, "disable")
        return _topic_list(self._table.topics())

    def get_topics_by_cluster(self, request: Request[GetTopicsByClusterRequestHeader]) -> Reply:
        """GET_TOPICS_BY_CLUSTER."""
        self._check_lists_allowed()
        return _topic_list(self._table.topics_of_cluster(request.header.cluster))

    def get_system_topics(self, request: Request[None]) -> Reply:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS: clusters and broker names are topics; a broker to ask for the rest is named."""
        names = [
            name for cluster in self._table.clusters().items() for name in (cluster[0], *cluster[1])
        ]
        addresses = (broker.any_address() for broker in self._table.brokers().values())
        return _topic_list(names, next((address for address in addresses if address), None))

    def get_unit_topics(self, request: Request[None]) -> Reply:
        """GET_UNIT_TOPIC_LIST."""
        self._check_lists_allowed()
        return _topic_list(self._table.topics_with_flags(TOPIC_UNIT))

    def get_unit_sub_topics(self, request: Request[None]) -> Reply:
        """GET_HAS_UNIT_SUB_TOPIC_LIST."""
        self._check_lists_allowed()
        return _topic_list(self._table.topics_with_flags(TOPIC_UNIT_SUB))

    def get_unit_sub_ununit_topics(self, request: Request[None]) -> Reply:
        """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST."""
        self._check_lists_allowed()
        return _topic_list(self._table.topics_with_flags(TOPIC_UNIT_SUB, TOPIC_UNIT))

    def _check_lists_allowed(self) -> None:
        if not self._config.enable_topic_list:
            raise ResponseError(_SYSTEM_ERROR, "disable")


def _topic_list(topics: list[str], broker_address: str | None = None) -> Reply:
    return Reply(body=encode_body(TopicList(broker_addr=broker_address, topic_list=set(topics))))


class KVRequests:
    """The key-value table, on behalf of operators."""

    def __init__(self, kv: KVConfig) -> None:
        self._kv = kv

    def put_kv_config(self, request: Request[PutKVConfigRequestHeader]) -> Deferred[Reply]:
        """PUT_KV_CONFIG: answered when the value is on disk."""
        header = request.header
        saved = self._kv.put(header.namespace, header.key, header.value)
        return saved.addCallback(lambda _: Reply())

    def get_kv_config(self, request: Request[GetKVConfigRequestHeader]) -> Reply:
        """GET_KV_CONFIG."""
        header = request.header
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            raise ResponseError(
                _QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return Reply(header=GetKVConfigResponseHeader(value=value))

    def delete_kv_config(self, request: Request[DeleteKVConfigRequestHeader]) -> Deferred[Reply]:
        """DELETE_KV_CONFIG: answered when that is on disk."""
        deleted = self._kv.delete(request.header.namespace, request.header.key)
        return deleted.addCallback(lambda _: Reply())

    def get_kv_list(self, request: Request[GetKVListByNamespaceRequestHeader]) -> Reply:
        """GET_KVLIST_BY_NAMESPACE."""
        body = self._kv.encoded_namespace(request.header.namespace)
        if body is None:
            raise ResponseError(
                _QUERY_NOT_FOUND, f"No config item, Namespace: {request.header.namespace}"
            )
        return Reply(body=body)
