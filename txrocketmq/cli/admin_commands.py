"""Which operation does a command of operators stand for, and what are its options called? One line for each.

Names and options are those of ``mqadmin``. A line is the command, the operations of `txrocketmq.client.admin.Admin` that it may mean (the first one
that takes what was given), and its options: ``letter/name=parameter``, with ``!`` where it must be given, and a kind behind a colon where
it is no text. ``-/name`` has no letter; the parameters ``every_s`` (repeat the command, so many seconds between) and
``is_traced`` (messages leave traces) are the tool's own, and ``-`` has no effect: mqadmin prints the same in another form then.

* ``int``; ``bool`` (``true`` or ``false``); ``flag`` (no value);
* ``list``, with commas between, ``numbers``, with semicolons; ``pairs``, ``a=b,c=d``, a name alone has no value;
* ``time``: ms since 1970, ``now``, or ``yyyy-MM-dd#HH:mm:ss:SSS`` in local time; ``mode``: ``PULL`` or ``POP``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import attrs

from txrocketmq.model.heartbeat import MessageRequestMode

INTERVAL, TRACED = "every_s", "is_traced"
"""What the tool itself takes: how often, and whether its messages leave traces."""
NO_LETTER = NO_EFFECT = "-"
KINDS = {
    "bool": "true or false.",
    "list": "Several with commas between.",
    "mode": "PULL or POP.",
    "numbers": "Several with semicolons between.",
    "pairs": "name=value, several with commas between; attributes as +name=value and -name.",
    "time": "ms since 1970, now, or yyyy-MM-dd#HH:mm:ss:SSS in local time.",
}
"""How a value of a kind is typed."""
_TARGET = "b/brokerAddr=broker c/clusterName=cluster"

_LINES = f"""
updateTopic topics.create,steps.unit_topic {_TARGET} t/topic!=topic r/readQueueNums=read_queue_nums:int w/writeQueueNums=write_queue_nums:int p/perm=perm:int o/order=order:bool a/attributes=attributes:pairs u/unit=unit:bool s/hasUnitSub=has_unit_sub:bool
deleteTopic topics.delete t/topic!=topic c/clusterName!=cluster
updateTopicPerm topics.update_perm {_TARGET} t/topic!=topic p/perm!=perm:int
topicRoute topics.route t/topic!=topic l/list=-:flag
topicStatus topics.status t/topic!=topic c/cluster=cluster
topicClusterList topics.clusters t/topic!=topic
topicList topics.names,steps.topics_of_clusters c/clusterModel=by_cluster:flag
allocateMQ topics.allocate t/topic!=topic i/ipList!=clients:list
deleteSubGroup groups.delete {_TARGET} g/groupName!=group r/removeOffset=clean_offset:bool
setConsumeMode groups.set_request_mode {_TARGET} t/topicName!=topic g/groupName!=group m/mode!=mode:mode q/popShareQueueNum=pop_share_queue_num:int
getConsumerConfig groups.configs_of g/groupName!=group
consumerProgress groups.progress,groups.overview g/groupName=group t/topicName=topic s/showClientIP=client_ips:bool c/cluster=cluster
brokerConsumeStats groups.stats_in_broker,steps.stats_in_broker b/brokerAddr!=broker o/order=order:bool t/timeoutMillis=timeout_ms:int l/level=level:int
producerConnection clients.producers g/producerGroup!=group t/topic!=topic
consumerConnection clients.consumers g/consumerGroup!=group b/brokerAddr=broker
consumerStatus clients.running_info,clients.all_running_infos g/consumerGroup!=group i/clientId=client_id b/brokerAddr=broker s/jstack=jstack:flag
getConsumerStatus clients.status g/group!=group t/topic!=topic i/originClientId=client_address
producer clients.all_producers b/broker!=broker
cloneGroupOffset offsets.clone s/srcGroup!=source d/destGroup!=target t/topic!=topic o/offline=-
resetOffsetByTime offsets.reset,offsets.reset_queue g/group!=group t/topic!=topic s/timestamp=timestamp_ms:time f/force=force:bool b/broker=broker q/queue=queue_id:int o/offset=offset:int c/cluster=cluster
resetOffsetByTimeOld offsets.reset_offline g/group!=group t/topic!=topic s/timestamp!=timestamp_ms:time f/force=force:bool c/cluster=cluster
skipAccumulatedMessage offsets.skip g/group!=group t/topic!=topic f/force=force:bool c/cluster=cluster
clusterList brokers.members c/clusterName=cluster m/moreStats=-:flag i/interval=every_s:int
brokerStatus brokers.runtime_info,brokers.runtime_infos {_TARGET}
getBrokerConfig brokers.config,brokers.configs {_TARGET}
updateBrokerConfig brokers.update_config {_TARGET} a/updateAllBroker=slaves:bool k/key!=change_key v/value!=change_value
cleanExpiredCQ brokers.clean_expired_queues b/brokerAddr=broker c/cluster=cluster
cleanUnusedTopic brokers.clean_unused_topics b/brokerAddr=broker c/cluster=cluster
deleteExpiredCommitLog brokers.delete_expired_commit_log b/brokerAddr=broker c/cluster=cluster
resetMasterFlushOffset brokers.reset_master_flush_offset b/brokerAddr!=broker o/offset!=offset:int
haStatus brokers.ha_status,brokers.ha_statuses {_TARGET} i/interval=every_s:int
getColdDataFlowCtrInfo brokers.cold_data_info,each.cold_data_info b/brokerAddr=broker c/clusterName=cluster
updateColdDataFlowCtrGroupConfig brokers.update_cold_data_threshold {_TARGET} g/consumerGroup!=group v/threshold!=threshold:int
removeColdDataFlowCtrGroupConfig brokers.remove_cold_data_threshold {_TARGET} g/consumerGroup!=group
setCommitLogReadAheadMode brokers.set_read_ahead_mode {_TARGET} m/commitLogReadAheadMode!=mode:int
switchTimerEngine brokers.switch_timer_engine {_TARGET} e/engineType!=engine
exportPopRecord brokers.export_pop_records {_TARGET} d/dryRun=dry_run:bool
sendMsgStatus probes.broker b/brokerName!=broker_name s/messageSize=size:int c/count=count:int
checkMsgSendRT probes.topic t/topic!=topic a/amount=amount:int s/size=size:int
clusterRT probes.clusters a/amount=amount:int s/size=size:int c/cluster=cluster p/printLog=- m/machineRoom=- i/interval=every_s:int
queryMsgById messages.by_id,steps.by_id,messages.consume_directly,steps.resend t/topic!=topic i/msgId!=message_id g/consumerGroup=group d/clientId=client_id s/sendMessage=again:bool f/bodyFormat=charset c/cluster=cluster
queryMsgByKey messages.by_key t/topic!=topic k/msgKey!=key b/beginTimestamp=begin_ms:time e/endTimestamp=end_ms:time m/maxNum=max_num:int c/cluster=cluster p/keyType=key_type l/lastKey=last_key
queryMsgByUniqueKey messages.by_unique_key,steps.consume_unique i/msgId!=unique_key g/consumerGroup=group d/clientId=client_id a/showAll=-:flag t/topic!=topic c/cluster=cluster s/startTime=begin_ms:time e/endTime=end_ms:time
queryMsgByOffset messages.by_offset,steps.by_offset t/topic!=topic b/brokerName!=broker_name i/queueId!=queue_id:int o/offset!=offset:int f/bodyFormat=charset
queryMsgTraceById messages.traces i/msgId!=message_id t/traceTopic=trace_topic b/beginTimestamp=begin_ms:time e/endTimestamp=end_ms:time c/maxNum=max_num:int
queryCq messages.consume_queue t/topic!=topic q/queue!=queue_id:int i/index!=index:int c/count=count:int b/broker!=broker g/consumer=group
updateKvConfig name_servers.put_kv s/namespace!=namespace k/key!=key v/value!=value
deleteKvConfig name_servers.delete_kv s/namespace!=namespace k/key!=key
wipeWritePerm name_servers.wipe_write_perm b/brokerName!=broker_name
addWritePerm name_servers.add_write_perm b/brokerName!=broker_name
getNamesrvConfig name_servers.config
updateNamesrvConfig name_servers.update_config k/key!=change_key v/value!=change_value
getSyncStateSet controllers.sync_state,controllers.sync_state_of_cluster a/controllerAddress!=controller c/clusterName=cluster b/brokerName=broker_names:list i/interval=every_s:int
getControllerMetaData controllers.metadata a/controllerAddress!=controller
getControllerConfig controllers.config a/controllerAddress!=controller
updateControllerConfig controllers.update_config a/controllerAddress!=controllers:list k/key!=change_key v/value!=change_value
electMaster controllers.elect_master a/controllerAddress!=controller b/brokerId!=broker_id:int bn/brokerName!=broker_name c/clusterName!=cluster
createUser access.create_user {_TARGET} u/username!=username p/password!=password t/userType=user_type
updateUser access.update_user {_TARGET} u/username!=username p/password=password t/userType=user_type s/userStatus=user_status
deleteUser access.delete_user {_TARGET} u/username!=username
getUser access.user,each.user {_TARGET} u/username!=username
listUser access.users,each.users {_TARGET} f/filter=name_filter
copyUser access.copy_users f/fromBroker!=source t/toBroker!=target u/usernames=usernames:list
createAcl access.create_acl {_TARGET} s/subject!=subject r/resources!=resources:list a/actions!=actions:list i/sourceIp=source_ips:list d/decision!=decision
updateAcl access.update_acl {_TARGET} s/subject!=subject r/resources!=resources:list a/actions!=actions:list i/sourceIp=source_ips:list d/decision!=decision
deleteAcl access.delete_acl {_TARGET} s/subject!=subject r/resources=resource
getAcl access.acl,each.acl {_TARGET} s/subject!=subject
listAcl access.acls,each.acls {_TARGET} s/subject=subject_filter r/resource=resource_filter
copyAcl access.copy_acls f/fromBroker!=source t/toBroker!=target s/subjects=subjects:list
statsAll traffic.topic,traffic.all a/activeTopic=active:flag t/topic=topic
updateTopicList files.topics {_TARGET} f/filename!=path
updateSubGroup steps.group {_TARGET} g/groupName!=group s/consumeEnable=consume_enable:bool m/consumeFromMinEnable=consume_from_min_enable:bool d/consumeBroadcastEnable=consume_broadcast_enable:bool o/consumeMessageOrderly=consume_message_orderly:bool q/retryQueueNums=retry_queue_nums:int r/retryMaxTimes=retry_max_times:int p/groupRetryPolicy=retry_policy i/brokerId=broker_id:int w/whichBrokerWhenConsumeSlowly=which_broker_when_consume_slowly:int a/notifyConsumerIdsChanged=notify_consumer_ids_changed_enable:bool -/attributes=attributes:pairs
updateSubGroupList files.groups {_TARGET} f/filename!=path
addBroker brokers.add_to_container c/brokerContainerAddr!=container b/brokerConfigPath!=config_path
removeBroker steps.remove_broker c/brokerContainerAddr!=container b/brokerIdentity!=identity
printMsg steps.messages t/topic!=topic c/charsetName=charset s/subExpression=expression b/beginTimestamp=begin_ms:time e/endTimestamp=end_ms:time d/printBody=bodies:bool l/lmqParentTopic=parent_topic
printMsgByQueue steps.messages_of_queue t/topic!=topic a/brokerName!=broker_name i/queueId!=queue_id:int c/charsetName=charset s/subExpression=expression b/beginTimestamp=begin_ms:time e/endTimestamp=end_ms:time p/printMsg=shown:bool d/printBody=bodies:bool f/calculate=counted:bool
consumeMessage steps.some_messages t/topic!=topic b/brokerName=broker_name i/queueId=queue_id:int o/offset=offset:int g/consumerGroup=group s/beginTimestamp=begin_ms:time e/endTimestamp=end_ms:time c/MessageNumber=max_num:int
updateOrderConf steps.order t/topic!=topic v/orderConf=value m/method!=method
startMonitoring monitor.rounds
sendMessage steps.send t/topic!=topic p/body!=body k/key=keys c/tags=tags b/broker=broker_name i/qid=queue_id:int m/msgTraceEnable=is_traced:bool
updateStaticTopic steps.grow_static_topic,files.static_topic t/topic!=topic qn/totalQueueNum=total_queues:int c/clusters=clusters:list b/brokers=brokers:list mf/mapFile=path fr/forceReplace=force:bool
remappingStaticTopic steps.move_static_topic,files.static_topic t/topic!=topic c/clusters=clusters:list b/brokers=brokers:list mf/mapFile=path fr/forceReplace=force:bool
exportMetadata files.export_metadata {_TARGET} f/filePath=folder t/topic=topics:flag g/subscriptionGroup=groups:flag s/specialTopic=special:flag
exportConfigs files.export_configs c/clusterName!=cluster f/filePath=folder
exportMetrics files.export_metrics c/clusterName!=cluster f/filePath=folder
getBrokerEpoch steps.epochs c/clusterName=cluster b/brokerName=broker_name i/interval=every_s:int
cleanBrokerMetadata controllers.clean_broker_data a/controllerAddress!=controller b/brokerControllerIdsToClean=broker_ids:numbers bn/brokerName!=broker_name c/clusterName=cluster l/cleanLivingBroker=living:flag
dumpCompactionLog files.compaction_log f/file!=path
rocksDBConfigToJson steps.rocksdb_config t/configType=types c/cluster=cluster b/brokerAddr=broker
checkRocksdbCqWriteProgress steps.rocksdb_queues c/cluster!=cluster t/topic=topic cf/checkFrom=check_from_ms:int
DecodeMessageId steps.decode_id i/messageId!=message_id
consumer steps.members g/consumerGroup!=group s/jstack=jstack:flag
"""


@attrs.frozen
class Option:
    """An option as it is typed, and the parameter that it is for."""

    letter: str
    name: str
    parameter: str
    kind: str = "text"
    is_required: bool = False

    @property
    def argument(self) -> str:
        """What the shell calls it."""
        return f"no_effect_{self.name}" if self.parameter == NO_EFFECT else self.parameter

    @property
    def flags(self) -> list[str]:
        """As it may be typed."""
        long = f"--{self.name}"
        return [long] if self.letter == NO_LETTER else [f"-{self.letter}", long]


@attrs.frozen
class Command:
    """A command.

    :ivar operations: what it may mean, as ``subject.method``.
    """

    name: str
    operations: tuple[str, ...]
    options: tuple[Option, ...]


def _option(text: str) -> Option:
    names, _, target = text.partition("=")
    letter, _, name = names.partition("/")
    parameter, _, kind = target.partition(":")
    return Option(letter, name.rstrip("!"), parameter, kind or "text", name.endswith("!"))


def _command(line: str) -> Command:
    name, operations, *options = line.split()
    return Command(name, tuple(operations.split(",")), tuple(map(_option, options)))


COMMANDS = tuple(_command(line) for line in _LINES.strip().splitlines())


def read_value(kind: str, text: str, now_ms: int) -> Any:
    """What an option's text says.

    :raises ValueError: it is not of this kind.
    """
    if kind == "int":
        return _whole_number(text)
    if kind == "bool":
        if text.strip().lower() not in ("true", "false"):
            raise ValueError(f"{text!r} is neither true nor false")
        return text.strip().lower() == "true"
    if kind == "list":
        return [word.strip() for word in text.split(",") if word.strip()]
    if kind == "numbers":
        return [_whole_number(word) for word in text.split(";") if word.strip()]
    if kind == "pairs":
        parts = [word.partition("=") for word in text.split(",") if word.strip()]
        return {name.strip(): value.strip() for name, _, value in parts}
    if kind == "mode":
        modes = [mode.value for mode in MessageRequestMode]
        if text.strip().upper() not in modes:
            raise ValueError(f"{text!r} is none of {', '.join(modes)}")
        return MessageRequestMode(text.strip().upper())
    if kind == "time":
        if text == "now":
            return now_ms
        if text.lstrip("-").isdecimal():
            return int(text)
        try:
            moment = datetime.strptime(f"{text}000", "%Y-%m-%d#%H:%M:%S:%f")
            return int(moment.timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            raise ValueError(
                f"{text!r} is no time: ms since 1970, now, or yyyy-MM-dd#HH:mm:ss:SSS is needed"
            ) from None
    return text


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is no whole number") from None
