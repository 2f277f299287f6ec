"""Who is connected, what do they consume, and what do they say of themselves?

Stands for the client half of ``AdminBrokerProcessor``.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted.internet.defer import Deferred

from txrocketmq.broker.clients import Consumers, Member, Producers
from txrocketmq.broker.consumer_offsets import ConsumerOffsets
from txrocketmq.broker.groups import SubscriptionGroups
from txrocketmq.broker.to_clients import ClientCalls, Offsets
from txrocketmq.broker.topics import Topics
from txrocketmq.codec.bodies import (
    Connection,
    ConsumerConnection,
    GetConsumerStatusBody,
    GroupList,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    QuerySubscriptionResponseBody,
    TopicList,
    encode_body,
)
from txrocketmq.codec.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetAllProducerInfoRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetProducerConnectionListRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import RecordError, ResponseError
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model.codes import LanguageCode, RequestCode, ResponseCode
from txrocketmq.model.message_id import parse_offset_message_id
from txrocketmq.remoting.dispatch import REMARK_NO_CODE, Reply, Request


class ConnectionAdmin:
    """Serves what operators ask about clients, and passes on what they ask of them.

    :param address: this broker as clients know it.
    """

    def __init__(
        self,
        config: BrokerConfig,
        address: str,
        store: IMessageStore,
        topics: Topics,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        consumers: Consumers,
        producers: Producers,
        clients: ClientCalls,
    ) -> None:
        self._config = config
        self._address = address
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._producers = producers
        self._clients = clients

    # ----------------------------------------------------------------- who is connected

    def get_consumers(self, request: Request[GetConsumerConnectionListRequestHeader]) -> Reply:
        """GET_CONSUMER_CONNECTION_LIST: the members of a group and what it subscribes to."""
        name = request.header.consumer_group
        group = self._consumers.get(name)
        if group is None:
            raise ResponseError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        body = ConsumerConnection(
            connection_set=_connections(group.members.values()),
            consume_from_where=group.consume_from_where,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscription_table=dict(group.subscriptions),
        )
        return Reply(body=encode_body(body))

    def get_producers(self, request: Request[GetProducerConnectionListRequestHeader]) -> Reply:
        """GET_PRODUCER_CONNECTION_LIST: the members of a producer group."""
        name = request.header.producer_group
        members = self._producers.members(name)
        if not members:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return Reply(body=encode_body(ProducerConnection(connection_set=_connections(members))))

    def get_all_producers(self, request: Request[GetAllProducerInfoRequestHeader]) -> Reply:
        """GET_ALL_PRODUCER_INFO: every producer group with its members."""
        table = {
            group: [_producer(member) for member in self._producers.members(group)]
            for group in self._producers.groups()
        }
        return Reply(body=encode_body(ProducerTableInfo(data=table)))

    # ----------------------------------------------------------------- who consumes what

    def who_consumes(self, request: Request[QueryTopicConsumeByWhoRequestHeader]) -> Reply:
        """QUERY_TOPIC_CONSUME_BY_WHO: groups that subscribe to a topic now, or have offsets of it."""
        topic = request.header.topic
        groups = {*self._consumers.groups_of(topic), *self._offsets.groups_of(topic)}
        return Reply(body=encode_body(GroupList(group_list=groups)))

    def topics_of_consumer(self, request: Request[QueryTopicsByConsumerRequestHeader]) -> Reply:
        """QUERY_TOPICS_BY_CONSUMER: topics of which a group has offsets."""
        topics = set(self._offsets.topics_of(request.header.group))
        return Reply(body=encode_body(TopicList(broker_addr=self._address, topic_list=topics)))

    def subscription_of(self, request: Request[QuerySubscriptionByConsumerRequestHeader]) -> Reply:
        """QUERY_SUBSCRIPTION_BY_CONSUMER: what a group's live members want of a topic; nothing where none does."""
        header = request.header
        group = self._consumers.get(header.group)
        body = QuerySubscriptionResponseBody(
            group=header.group,
            topic=header.topic,
            subscription_data=None
            if group is None
            else group.subscriptions.get(header.topic or ""),
        )
        return Reply(body=encode_body(body))

    # ----------------------------------------------------------------- asked of clients

    def get_running_info(
        self, request: Request[GetConsumerRunningInfoRequestHeader]
    ) -> Deferred[Reply]:
        """GET_CONSUMER_RUNNING_INFO: asked of the client, whose answer is passed back."""
        header = request.header
        return self._clients.call(
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            header.consumer_group,
            header.client_id,
            request.ext_fields,
            request.body,
        )

    def consume_directly(
        self, request: Request[ConsumeMessageDirectlyResultRequestHeader]
    ) -> Deferred[Reply]:
        """CONSUME_MESSAGE_DIRECTLY: the message is read here and given to the client, whose answer is passed back."""
        header = request.header
        fields = dict(request.ext_fields)
        fields["brokerName"] = self._config.broker_name
        topic = self._topics.get(header.topic or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.get(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        return self._clients.call(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            header.consumer_group,
            header.client_id,
            fields,
            self._record(header.msg_id or ""),
        )

    def _record(self, message_id: str) -> bytes:
        try:
            _, _, offset = parse_offset_message_id(message_id)
        except RecordError as error:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        record = self._store.look_message_bytes(offset, 0)
        if record is None:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        return record

    def get_consumer_status(
        self, request: Request[GetConsumerStatusRequestHeader]
    ) -> Deferred[Reply]:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: where the members of a group say that they stand in a topic."""
        header = request.header
        asking = self._clients.consumer_status(header.topic, header.group, header.client_addr)
        return asking.addCallback(_status_reply)


def _status_reply(found: dict[str, Offsets]) -> Reply:
    return Reply(
        remark=REMARK_NO_CODE, body=encode_body(GetConsumerStatusBody(consumer_table=found))
    )


def _language(member: Member) -> str:
    try:
        return LanguageCode(member.language).name
    except ValueError:
        return LanguageCode.OTHER.name


def _connections(members: Iterable[Member]) -> list[Connection]:
    return [
        Connection(
            client_id=member.client_id,
            client_addr=member.connection.remote_text,
            language=_language(member),
            version=member.version,
        )
        for member in members
    ]


def _producer(member: Member) -> ProducerInfo:
    return ProducerInfo(
        client_id=member.client_id,
        language=_language(member),
        last_update_timestamp=member.last_seen_ms,
        # As Java prints an address without a host name.
        remote_ip=f"/{member.connection.remote_text}",
        version=member.version,
    )
