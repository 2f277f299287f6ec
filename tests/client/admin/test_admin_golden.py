"""What official servers answered mqadmin is read into the typed results, and what we ask is what mqadmin asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from golden_servers import (
    BROKER,
    Exchange,
    comparable,
    golden_admin,
    official_request,
)
from twisted.internet.defer import Deferred

from txrocketmq.client.admin.admin import Admin
from txrocketmq.codec.bodies.tables import CreateTopicListRequestBody, SubscriptionGroupList
from txrocketmq.codec.bodies.wire import decode_body
from txrocketmq.codec.header_codec import header_codec
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.heartbeat import MessageRequestMode

R = RequestCode
Call = Callable[[Admin, dict[str, str], bytes], Any]
Check = Callable[[Any], bool]

CLUSTER, TOPIC, GROUP = "GoldenCluster", "TopicAdmin", "CG_admin"
DONE: Check = lambda found: found == [BROKER]  # noqa: E731


def attributes_of(fields: dict[str, str]) -> dict[str, str]:
    return dict(item.split("=") for item in fields["attributes"].split(",") if item)


def create_topic(admin: Admin, fields: dict[str, str], body: bytes) -> Any:
    return admin.topics.create(
        fields["topic"],
        broker=BROKER,
        read_queue_nums=int(fields["readQueueNums"]),
        write_queue_nums=int(fields["writeQueueNums"]),
        attributes=attributes_of(fields),
    )


def only(messages: Any) -> Any:
    async def all_of() -> list[Any]:
        return [message async for message in messages]

    return all_of()


ADMIN: list[tuple[str, RequestCode, Call, Check]] = [
    ("updateTopic-broker", R.UPDATE_AND_CREATE_TOPIC, create_topic, DONE),
    ("updateTopic-attributes", R.UPDATE_AND_CREATE_TOPIC, create_topic, DONE),
    (
        "updateTopic-cluster",
        R.PUT_KV_CONFIG,
        lambda a, f, b: a.topics.create(
            f["key"], cluster=CLUSTER, write_queue_nums=2, read_queue_nums=2, order=True
        ),
        DONE,
    ),
    (
        "updateTopicPerm",
        R.UPDATE_AND_CREATE_TOPIC,
        lambda a, f, b: a.topics.update_perm(f["topic"], int(f["perm"]), broker=BROKER),
        lambda found: found == {BROKER: 6},
    ),
    (
        "updateTopicList",
        R.UPDATE_AND_CREATE_TOPIC_LIST,
        lambda a, f, b: a.topics.create_list(
            decode_body(CreateTopicListRequestBody, b).topic_config_list, broker=BROKER
        ),
        DONE,
    ),
    (
        "deleteTopic",
        R.DELETE_TOPIC_IN_NAMESRV,
        lambda a, f, b: a.topics.delete(f["topic"], f["clusterName"]),
        DONE,
    ),
    (
        "topicList",
        R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        lambda a, f, b: a.topics.names(),
        lambda found: TOPIC in found,
    ),
    (
        "api-fetchTopicsByCLuster",
        R.GET_TOPICS_BY_CLUSTER,
        lambda a, f, b: a.topics.names(f["cluster"]),
        lambda found: TOPIC in found,
    ),
    (
        "topicStatus",
        R.GET_TOPIC_STATS_INFO,
        lambda a, f, b: a.topics.status(f["topic"]),
        lambda found: {q.queue_id for q in found.offset_table} == {0, 1},
    ),
    (
        "topicStatus",
        R.GET_TOPIC_CONFIG,
        lambda a, f, b: a.topics.config(BROKER, f["topic"]),
        lambda found: (found.topic_name, found.perm) == (TOPIC, 6),
    ),
    (
        "exportMetadata",
        R.GET_ALL_TOPIC_CONFIG,
        lambda a, f, b: a.topics.configs(BROKER),
        lambda found: TOPIC in found.topic_config_table,
    ),
    (
        "exportMetadata",
        R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        lambda a, f, b: a.exports.metadata(cluster=CLUSTER),
        lambda found: TOPIC in found.topics and GROUP in found.groups,
    ),
    (
        "api-queryTopicConsumeByWho",
        R.QUERY_TOPIC_CONSUME_BY_WHO,
        lambda a, f, b: a.topics.consumer_groups(f["topic"]),
        lambda found: "CG_api" in found,
    ),
    (
        "api-topics-of-consumer",
        R.QUERY_TOPICS_BY_CONSUMER,
        lambda a, f, b: a.topics.of_group(BROKER, f["group"]),
        lambda found: "TopicApi" in found,
    ),
    (
        "updateSubGroup",
        R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        lambda a, f, b: a.groups.create(decode_body(SubscriptionGroupConfig, b), broker=BROKER),
        DONE,
    ),
    (
        "updateSubGroupList",
        R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        lambda a, f, b: a.groups.create_list(
            decode_body(SubscriptionGroupList, b).group_config_list, broker=BROKER
        ),
        DONE,
    ),
    (
        "deleteSubGroup",
        R.DELETE_SUBSCRIPTIONGROUP,
        lambda a, f, b: a.groups.delete(f["groupName"], broker=BROKER),
        DONE,
    ),
    (
        "setConsumeMode",
        R.SET_MESSAGE_REQUEST_MODE,
        lambda a, f, b: a.groups.set_request_mode(
            TOPIC, "CG_adm_pop", MessageRequestMode.POP, 1, broker=BROKER
        ),
        DONE,
    ),
    (
        "getConsumerConfig",
        R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        lambda a, f, b: a.groups.configs_of(GROUP),
        lambda found: found["broker-a"].group_name == GROUP,
    ),
    (
        "api-subscription-group-config",
        R.GET_SUBSCRIPTIONGROUP_CONFIG,
        lambda a, f, b: a.groups.config(BROKER, f["group"]),
        lambda found: found.group_name == "CG_api",
    ),
    (
        "consumerProgress",
        R.GET_CONSUME_STATS,
        lambda a, f, b: a.groups.progress(f["consumerGroup"]),
        lambda found: {row.queue.topic for row in found.queues} >= {TOPIC},
    ),
    (
        "consumerProgress-clientip",
        R.GET_CONSUMER_RUNNING_INFO,
        lambda a, f, b: a.groups.progress(f["consumerGroup"], client_ips=True),
        lambda found: "192.0.2.10" in {row.client_ip for row in found.queues},
    ),
    (
        "brokerConsumeStats",
        R.GET_BROKER_CONSUME_STATS,
        lambda a, f, b: a.groups.stats_in_broker(BROKER),
        lambda found: found.broker_addr == BROKER and found.consume_stats_list,
    ),
    (
        "api-queryConsumeTimeSpan",
        R.QUERY_CONSUME_TIME_SPAN,
        lambda a, f, b: a.groups.time_span(f["topic"], f["group"]),
        lambda found: found[0].message_queue.topic == "TopicApi",
    ),
    (
        "api-querySubscription",
        R.QUERY_SUBSCRIPTION_BY_CONSUMER,
        lambda a, f, b: a.groups.subscription(BROKER, f["group"], f["topic"]),
        lambda found: found.topic == "TopicApi",
    ),
    (
        "api-updateAndGetGroupReadForbidden",
        R.UPDATE_AND_GET_GROUP_FORBIDDEN,
        lambda a, f, b: a.groups.set_readable(BROKER, f["group"], f["topic"], False),
        lambda found: found.readable is False,
    ),
    (
        "consumerConnection",
        R.GET_CONSUMER_CONNECTION_LIST,
        lambda a, f, b: a.clients.consumers(f["consumerGroup"]),
        lambda found: "192.0.2.10@c3" in {item.client_id for item in found.connection_set},
    ),
    (
        "producerConnection",
        R.GET_PRODUCER_CONNECTION_LIST,
        lambda a, f, b: a.clients.producers(f["producerGroup"], TOPIC),
        lambda found: found.connection_set[0].language == "JAVA",
    ),
    (
        "producer",
        R.GET_ALL_PRODUCER_INFO,
        lambda a, f, b: a.clients.all_producers(BROKER),
        lambda found: "PG_admin" in found.data,
    ),
    (
        "consumerStatus-client",
        R.GET_CONSUMER_RUNNING_INFO,
        lambda a, f, b: a.clients.running_info(f["consumerGroup"], f["clientId"]),
        lambda found: TOPIC in {queue.topic for queue in found.mq_table},
    ),
    (
        "resetOffsetByTime",
        R.INVOKE_BROKER_TO_RESET_OFFSET,
        lambda a, f, b: a.offsets.reset(f["group"], f["topic"], 0),
        lambda found: set(found.offsets.values()) == {0},
    ),
    (
        "skipAccumulatedMessage",
        R.INVOKE_BROKER_TO_RESET_OFFSET,
        lambda a, f, b: a.offsets.skip(f["group"], f["topic"]),
        lambda found: found.offsets,
    ),
    (
        "api-clone-group-offset",
        R.CLONE_GROUP_OFFSET,
        lambda a, f, b: a.offsets.clone_at_brokers(
            f["srcGroup"], f["destGroup"], f["topic"], offline=True
        ),
        DONE,
    ),
    (
        "queryMsgByKey",
        R.QUERY_MESSAGE,
        lambda a, f, b: a.messages.by_key(f["topic"], f["key"]),
        lambda found: [message.keys for message in found.messages] == ["admin-key"],
    ),
    (
        "printMsgByQueue",
        R.GET_MIN_OFFSET,
        lambda a, f, b: only(a.messages.scan(f["topic"], queue_id=int(f["queueId"]), max_num=1)),
        lambda found: len(found) == 1,
    ),
    (
        "queryCq",
        R.QUERY_CONSUME_QUEUE,
        lambda a, f, b: a.messages.consume_queue(BROKER, TOPIC, 0, 0, 3, GROUP),
        lambda found: found.queue_data[0].physic_size > 0,
    ),
    (
        "api-resumeCheckHalfMessage",
        R.RESUME_CHECK_HALF_MESSAGE,
        lambda a, f, b: a.messages.resume_check(f["topic"], f["msgId"]),
        lambda found: found is None,
    ),
    (
        "brokerStatus",
        R.GET_BROKER_RUNTIME_INFO,
        lambda a, f, b: a.brokers.runtime_info(BROKER),
        lambda found: found["brokerVersionDesc"] == "V5_4_0",
    ),
    (
        "clusterList",
        R.GET_BROKER_RUNTIME_INFO,
        lambda a, f, b: a.brokers.members(),
        lambda found: found[0].version == "V5_4_0",
    ),
    (
        "getBrokerConfig",
        R.GET_BROKER_CONFIG,
        lambda a, f, b: a.brokers.config(BROKER),
        lambda found: found["brokerName"] == "broker-a",
    ),
    (
        "updateBrokerConfig",
        R.UPDATE_BROKER_CONFIG,
        lambda a, f, b: a.brokers.update_config({"waitTimeMillsInSendQueue": 250}, broker=BROKER),
        DONE,
    ),
    (
        "statsAll",
        R.VIEW_BROKER_STATS_DATA,
        lambda a, f, b: a.brokers.stats(BROKER, f["statsName"], f["statsKey"]),
        lambda found: found.stats_minute is not None,
    ),
    (
        "cleanExpiredCQ",
        R.CLEAN_EXPIRED_CONSUMEQUEUE,
        lambda a, f, b: a.brokers.clean_expired_queues(broker=BROKER),
        DONE,
    ),
    (
        "cleanUnusedTopic",
        R.CLEAN_UNUSED_TOPIC,
        lambda a, f, b: a.brokers.clean_unused_topics(broker=BROKER),
        DONE,
    ),
    (
        "deleteExpiredCommitLog",
        R.DELETE_EXPIRED_COMMITLOG,
        lambda a, f, b: a.brokers.delete_expired_commit_log(broker=BROKER),
        DONE,
    ),
    (
        "haStatus",
        R.GET_BROKER_HA_STATUS,
        lambda a, f, b: a.brokers.ha_status(BROKER),
        lambda found: found.master is True,
    ),
    (
        "getColdDataFlowCtrInfo",
        R.GET_COLD_DATA_FLOW_CTR_INFO,
        lambda a, f, b: a.brokers.cold_data_info(BROKER),
        lambda found: isinstance(found, dict) and found,
    ),
    (
        "updateColdDataFlowCtrGroupConfig",
        R.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        lambda a, f, b: a.brokers.update_cold_data_threshold(GROUP, 1048576, broker=BROKER),
        DONE,
    ),
    (
        "removeColdDataFlowCtrGroupConfig",
        R.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        lambda a, f, b: a.brokers.remove_cold_data_threshold(GROUP, broker=BROKER),
        DONE,
    ),
    (
        "setCommitLogReadAheadMode",
        R.SET_COMMITLOG_READ_MODE,
        lambda a, f, b: a.brokers.set_read_ahead_mode(0, broker=BROKER),
        DONE,
    ),
    (
        "exportPopRecord",
        R.GET_BROKER_CONFIG,
        lambda a, f, b: a.brokers.export_pop_records(broker=BROKER),
        lambda found: list(found) == [BROKER],
    ),
    (
        "resetMasterFlushOffset",
        R.RESET_MASTER_FLUSH_OFFSET,
        lambda a, f, b: a.brokers.reset_master_flush_offset(BROKER, 0),
        lambda found: found is None,
    ),
    (
        "api-timer-metrics",
        R.GET_TIMER_METRICS,
        lambda a, f, b: a.brokers.timer_metrics(BROKER),
        lambda found: found.timing_count is not None,
    ),
    (
        "api-all-consumer-offset",
        R.GET_ALL_CONSUMER_OFFSET,
        lambda a, f, b: a.brokers.consumer_offsets(BROKER),
        lambda found: f"{TOPIC}@{GROUP}" in found.offset_table,
    ),
    (
        "updateKvConfig",
        R.PUT_KV_CONFIG,
        lambda a, f, b: a.name_servers.put_kv(f["namespace"], f["key"], f["value"]),
        lambda found: found is None,
    ),
    (
        "deleteKvConfig",
        R.DELETE_KV_CONFIG,
        lambda a, f, b: a.name_servers.delete_kv(f["namespace"], f["key"]),
        lambda found: found is None,
    ),
    (
        "api-getKVListByNamespace",
        R.GET_KVLIST_BY_NAMESPACE,
        lambda a, f, b: a.name_servers.list_kv(f["namespace"]),
        lambda found: found,
    ),
    (
        "updateOrderConf-get",
        R.GET_KV_CONFIG,
        lambda a, f, b: a.topics.order(f["key"]),
        lambda found: found.startswith("broker-a:"),
    ),
    (
        "updateOrderConf-delete",
        R.DELETE_KV_CONFIG,
        lambda a, f, b: a.topics.delete_order(f["key"]),
        lambda found: found is None,
    ),
    (
        "getNamesrvConfig",
        R.GET_NAMESRV_CONFIG,
        lambda a, f, b: a.name_servers.config(),
        lambda found: "kvConfigPath" in next(iter(found.values())),
    ),
    (
        "updateNamesrvConfig",
        R.UPDATE_NAMESRV_CONFIG,
        lambda a, f, b: a.name_servers.update_config({"orderMessageEnable": True}),
        lambda found: len(found) == 1,
    ),
    (
        "wipeWritePerm",
        R.WIPE_WRITE_PERM_OF_BROKER,
        lambda a, f, b: a.name_servers.wipe_write_perm(f["brokerName"]),
        lambda found: next(iter(found.values())) > 0,
    ),
    (
        "addWritePerm",
        R.ADD_WRITE_PERM_OF_BROKER,
        lambda a, f, b: a.name_servers.add_write_perm(f["brokerName"]),
        lambda found: next(iter(found.values())) > 0,
    ),
    (
        "api-broker-member-group",
        R.GET_BROKER_MEMBER_GROUP,
        lambda a, f, b: a.name_servers.member_group(f["clusterName"], f["brokerName"]),
        lambda found: found.broker_addrs == {0: BROKER},
    ),
]

CONTROLLER: list[tuple[str, RequestCode, Call, Check]] = [
    (
        "getControllerMetaData",
        R.CONTROLLER_GET_METADATA_INFO,
        lambda a, f, b: a.controllers.metadata("c:1"),
        lambda found: found.controller_leader_address,
    ),
    (
        "getSyncStateSet",
        R.CONTROLLER_GET_SYNC_STATE_DATA,
        lambda a, f, b: a.controllers.sync_state("c:1", ["broker-c"]),
        lambda found: "broker-c" in found.replicas_info_table,
    ),
    (
        "getControllerConfig",
        R.GET_CONTROLLER_CONFIG,
        lambda a, f, b: a.controllers.config("c:1"),
        lambda found: "controllerType" in found,
    ),
    (
        "updateControllerConfig",
        R.UPDATE_CONTROLLER_CONFIG,
        lambda a, f, b: a.controllers.update_config(["c:1"], {"scanNotActiveBrokerInterval": 6000}),
        lambda found: found == ["c:1"],
    ),
    (
        "getBrokerEpoch",
        R.GET_BROKER_EPOCH_CACHE,
        lambda a, f, b: a.brokers.epochs(BROKER),
        lambda found: found.broker_name == "broker-c" and found.epoch_list,
    ),
]

USER = "golden-user"
SUBJECT = f"User:{USER}"
ACCESS: list[tuple[str, RequestCode, Call, Check]] = [
    (
        "createUser",
        R.AUTH_CREATE_USER,
        lambda a, f, b: a.access.create_user(USER, "golden-pass", "Normal", broker=BROKER),
        DONE,
    ),
    (
        "updateUser",
        R.AUTH_UPDATE_USER,
        lambda a, f, b: a.access.update_user(USER, password="golden-pass2", broker=BROKER),
        DONE,
    ),
    (
        "deleteUser",
        R.AUTH_DELETE_USER,
        lambda a, f, b: a.access.delete_user(USER, broker=BROKER),
        DONE,
    ),
    (
        "getUser",
        R.AUTH_GET_USER,
        lambda a, f, b: a.access.user(BROKER, USER),
        lambda found: (found.username, found.user_type) == (USER, "Normal"),
    ),
    (
        "listUser",
        R.AUTH_LIST_USER,
        lambda a, f, b: a.access.users(BROKER),
        lambda found: "golden-access" in {user.username for user in found},
    ),
    (
        "createAcl",
        R.AUTH_CREATE_ACL,
        lambda a, f, b: a.access.create_acl(
            SUBJECT, [f"Topic:{TOPIC}"], ["Pub", "Sub"], "Allow", _source_ips(b), broker=BROKER
        ),
        DONE,
    ),
    (
        "updateAcl",
        R.AUTH_UPDATE_ACL,
        lambda a, f, b: a.access.update_acl(
            SUBJECT, [f"Topic:{TOPIC}"], ["Pub"], "Deny", broker=BROKER
        ),
        DONE,
    ),
    (
        "deleteAcl",
        R.AUTH_DELETE_ACL,
        lambda a, f, b: a.access.delete_acl(SUBJECT, broker=BROKER),
        DONE,
    ),
    (
        "getAcl",
        R.AUTH_GET_ACL,
        lambda a, f, b: a.access.acl(BROKER, SUBJECT),
        lambda found: found.subject == SUBJECT and found.policies[0].entries,
    ),
    (
        "listAcl",
        R.AUTH_LIST_ACL,
        lambda a, f, b: a.access.acls(BROKER),
        lambda found: SUBJECT in {item.subject for item in found},
    ),
]


def _source_ips(body: bytes) -> list[str]:
    found: list[str] = msgspec.json.decode(body)["policies"][0]["entries"][0]["sourceIps"]
    return found


CASES = [
    *(("adm54", *case) for case in ADMIN),
    *(("admctl54", *case) for case in CONTROLLER),
    *(("auth54", *case) for case in ACCESS),
]


@pytest.mark.parametrize(
    ("tag", "conversation", "code", "call", "check"),
    CASES,
    ids=[f"{case[1]}-{case[2].name}" for case in CASES],
)
def test_official_answers_are_read_and_requests_are_official(
    tag: str, conversation: str, code: RequestCode, call: Call, check: Check
) -> None:
    official = official_request(tag, conversation, code)
    admin, servers = golden_admin(tag, conversation)
    found: list[Any] = []
    done = Deferred.fromCoroutine(call(admin, official.fields, official.body))
    done.addCallbacks(found.append, lambda failure: failure.raiseException())
    assert found, "not finished"
    assert check(found[0]), found[0]
    ours = [asked for asked in servers.asked if asked[0] == code]
    assert ours
    assert any(_is_same(official, *asked[1:]) for asked in ours), (official, ours)


def _is_same(official: Exchange, fields: dict[str, str], body: bytes, header: Any) -> bool:
    """Whether a request of ours says what the official one says; what is not said has the header's initial value."""
    if comparable(official.body) != comparable(body):
        return False
    if header is None:
        return official.fields == fields
    codec = header_codec(type(header))
    known = set(codec.to_map(codec.decode_map(official.fields)))
    rest = {k: v for k, v in official.fields.items() if k not in known and v}
    declared = {field.encode_name for field in msgspec.structs.fields(type(header))}
    extra = {k: v for k, v in fields.items() if k not in declared}
    mine, theirs = codec.decode_map(fields), codec.decode_map(official.fields)
    same = all(
        (getattr(mine, name) or None) == (getattr(theirs, name) or None)
        for name in mine.__struct_fields__
    )
    return same and {k: v for k, v in rest.items() if k not in declared} == extra
