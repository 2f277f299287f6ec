"""Who is alive: HEART_BEAT, UNREGISTER_CLIENT, GET_CONSUMER_LIST_BY_GROUP, CHECK_CLIENT_CONFIG?

Stands for ``ClientManageProcessor`` and the list half of ``ConsumerManageProcessor``.
"""

from __future__ import annotations

from collections.abc import Callable

from txrocketmq.broker.clients import Consumers, Member, Producers
from txrocketmq.broker.filter.sql92 import compile_filter
from txrocketmq.broker.groups import SubscriptionGroups
from txrocketmq.broker.queue_stats import CONSUMER_REGISTER_TIME, PRODUCER_REGISTER_TIME
from txrocketmq.broker.remarks import filter_not_served
from txrocketmq.broker.topics import Topics
from txrocketmq.codec.bodies import (
    CheckClientRequestBody,
    DecodedHeartbeat,
    GetConsumerListByGroupResponseBody,
    decode_body,
    decode_heartbeat,
    encode_body,
)
from txrocketmq.codec.headers import (
    GetConsumerListByGroupRequestHeader,
    GetConsumerListByGroupResponseHeader,
    HeartbeatRequestHeader,
    UnregisterClientRequestHeader,
    UnregisterClientResponseHeader,
)
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import FilterError, ResponseError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.flags import PERM_READ_WRITE, topic_sys_flag
from txrocketmq.model.heartbeat import (
    EXPRESSION_SQL92,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
)
from txrocketmq.model.names import group_fault, retry_topic
from txrocketmq.remoting.dispatch import Reply, Request

MAX_HEARTBEAT_BYTES = 4 * 1024 * 1024
MAX_HEARTBEAT_GROUPS = 1000
"""Groups of each kind that one client may be in; those beyond it are refused. Usual clients are in one or two."""
MAX_FAULTS_TOLD = 10
MAX_CLIENT_ID_LENGTH = 1024
MAX_PRODUCER_GROUP_LENGTH = 255
"""In characters; official clients keep to the second."""

SUPPORTS_HEARTBEAT_V2 = "IS_SUPPORT_HEART_BEAT_V2"
SUBSCRIPTION_CHANGED = "IS_SUB_CHANGE"


class HeartbeatProcessor:
    """Keeps the tables of clients from what they say of themselves.

    :ivar register_took: is told how many milliseconds it took to enter one group, after the figure's name.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        groups: SubscriptionGroups,
        consumers: Consumers,
        producers: Producers,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._producers = producers
        self._now_ms = now_ms
        self.register_took: Callable[[str, int], object] = _nobody

    def heart_beat(self, request: Request[HeartbeatRequestHeader]) -> Reply:
        """HEART_BEAT: register every group that can be read; what cannot is named, and refused alone."""
        decoded, client_id = _readable(request.body)
        heartbeat = decoded.heartbeat
        now_ms = self._now_ms()
        fingerprint = heartbeat.heartbeat_fingerprint
        changed = fingerprint == 0
        faults = list(decoded.faults)
        for kind, groups in (
            ("consumerDataSet", heartbeat.consumer_data_set),
            ("producerDataSet", heartbeat.producer_data_set),
        ):
            if len(groups) > MAX_HEARTBEAT_GROUPS:
                faults.append(f"{kind}: {len(groups)} groups, at most {MAX_HEARTBEAT_GROUPS}")
        for data in heartbeat.consumer_data_set[:MAX_HEARTBEAT_GROUPS]:
            name = data.group_name or ""
            fault = group_fault(name)
            if fault is not None:
                faults.append(f"consumerDataSet: groupName: {fault}")
                continue
            if self._groups.find(name) is None:
                continue
            group = self._consumers.get(name)
            known = None if group is None else group.fingerprint
            if known is None:
                # A broker that was restarted, or had no member of the group, knows nothing: the client has to tell all again.
                changed = changed or heartbeat.without_sub
            elif known != fingerprint:
                changed = True
            member = self._member(request, client_id, now_ms)
            begun_ms = self._now_ms()
            self._register(data, member, bool(fingerprint) and heartbeat.without_sub)
            group = self._consumers.get(name)
            if group is not None:
                group.fingerprint = fingerprint
            self.register_took(CONSUMER_REGISTER_TIME, self._now_ms() - begun_ms)
        for producer in heartbeat.producer_data_set[:MAX_HEARTBEAT_GROUPS]:
            name = producer.group_name or ""
            if len(name) > MAX_PRODUCER_GROUP_LENGTH:
                faults.append(
                    f"producerDataSet: groupName of {len(name)} characters, "
                    f"at most {MAX_PRODUCER_GROUP_LENGTH}"
                )
            elif name and self._config.enable_register_producer:
                member = self._member(request, client_id, now_ms)
                begun_ms = self._now_ms()
                self._producers.register(name, member)
                self.register_took(PRODUCER_REGISTER_TIME, self._now_ms() - begun_ms)
        if faults:
            told = faults[:MAX_FAULTS_TOLD]
            if len(faults) > len(told):
                told.append(f"and {len(faults) - len(told)} more")
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "; ".join(told))
        return Reply(
            ext_fields={
                SUPPORTS_HEARTBEAT_V2: "true",
                SUBSCRIPTION_CHANGED: "true" if changed else "false",
            }
        )

    def unregister_client(self, request: Request[UnregisterClientRequestHeader]) -> Reply:
        """UNREGISTER_CLIENT: a client leaves a producer group, a consumer group, or both."""
        header = request.header
        if header.producer_group is not None:
            self._producers.unregister(header.producer_group, request.connection)
        if header.consumer_group is not None:
            group = self._groups.find(header.consumer_group)
            notify = group is None or group.notify_consumer_ids_changed_enable
            self._consumers.unregister(header.consumer_group, request.connection, notify)
        return Reply(header=UnregisterClientResponseHeader())

    def get_consumer_list(self, request: Request[GetConsumerListByGroupRequestHeader]) -> Reply:
        """GET_CONSUMER_LIST_BY_GROUP: the client ids of a group; an error, never an empty list."""
        name = request.header.consumer_group
        group = self._consumers.get(name)
        if group is None:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        body = GetConsumerListByGroupResponseBody(consumer_id_list=group.client_ids())
        return Reply(header=GetConsumerListByGroupResponseHeader(), body=encode_body(body))

    def check_client_config(self, request: Request[None]) -> Reply:
        """CHECK_CLIENT_CONFIG: whether this broker can filter as a consumer wishes, asked before it starts."""
        subscription = decode_body(CheckClientRequestBody, request.body).subscription_data
        if subscription is None or subscription.is_tag_type:
            return Reply()
        kind = subscription.expression_type
        if kind != EXPRESSION_SQL92 or not self._config.enable_property_filter:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, filter_not_served(kind))
        try:
            compile_filter(subscription.sub_string or "")
        except FilterError as error:
            raise ResponseError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        return Reply()

    @staticmethod
    def _member(request: Request[HeartbeatRequestHeader], client_id: str, now_ms: int) -> Member:
        return Member(request.connection, client_id, request.language, request.version, now_ms)

    def _register(self, data: ConsumerData, member: Member, without_subscriptions: bool) -> None:
        name = data.group_name or ""
        consume_type = data.consume_type or ConsumeType.CONSUME_PASSIVELY
        if (
            consume_type == ConsumeType.CONSUME_ACTIVELY
            and self._config.reject_pull_consumer_enable
        ):
            return
        group = self._groups.find(name)
        if group is None:
            return
        ordered = any(
            self._topics.is_ordered(subscription.topic or "")
            for subscription in data.subscription_data_set
        )
        self._topics.create_for_group(
            retry_topic(name),
            group.retry_queue_nums,
            PERM_READ_WRITE,
            ordered,
            topic_sys_flag(unit=False, unit_sub=True) if data.unit_mode else 0,
        )
        self._consumers.register(
            name,
            member,
            consume_type,
            data.message_model or MessageModel.CLUSTERING,
            data.consume_from_where or ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            None if without_subscriptions else data.subscription_data_set,
            group.notify_consumer_ids_changed_enable,
        )


def _nobody(name: str, milliseconds: int) -> None:
    return None


def _readable(body: bytes) -> tuple[DecodedHeartbeat, str]:
    """What a client says of itself, and its id.

    :raises ResponseError: it is too much, or from nobody.
    """
    if len(body) > MAX_HEARTBEAT_BYTES:
        raise ResponseError(
            ResponseCode.SYSTEM_ERROR,
            f"heartbeat of {len(body)} bytes, at most {MAX_HEARTBEAT_BYTES}",
        )
    decoded = decode_heartbeat(body)
    client_id = decoded.heartbeat.client_id
    if not client_id:
        raise ResponseError(ResponseCode.SYSTEM_ERROR, "heartbeat without clientID")
    if len(client_id) > MAX_CLIENT_ID_LENGTH:
        raise ResponseError(
            ResponseCode.SYSTEM_ERROR,
            f"clientID of {len(client_id)} characters, at most {MAX_CLIENT_ID_LENGTH}",
        )
    return decoded, client_id
