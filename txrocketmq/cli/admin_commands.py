"""Which operation does a command of operators stand for, and what are its options called? One line for each.

Names and options are those of ``mqadmin``. A line is the command, the operations of `txrocketmq.client.admin.Admin` that it may mean (the first one
that takes what was given), and its options: ``letter/name=parameter``, with ``!`` where it must be given, and a kind behind a colon where
it is no text:

* ``int``; ``bool`` (``true`` or ``false``); ``flag`` (no value);
* ``list``, with commas between; ``pairs``, ``a=b,c=d``, a name alone has no value;
* ``time``: ms since 1970, ``now``, or ``yyyy-MM-dd#HH:mm:ss:SSS`` in local time; ``mode``: ``PULL`` or ``POP``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import attrs

from txrocketmq.model.heartbeat import MessageRequestMode

_TARGET = "b/brokerAddr=broker c/clusterName=cluster"

_LINES = f"""
updateTopic topics.create {_TARGET} t/topic!=topic r/readQueueNums=read_queue_nums:int w/writeQueueNums=write_queue_nums:int p/perm=perm:int o/order=order:bool a/attributes=attributes:pairs
deleteTopic topics.delete t/topic!=topic c/clusterName!=cluster
updateTopicPerm topics.update_perm {_TARGET} t/topic!=topic p/perm!=perm:int
topicRoute topics.route t/topic!=topic
topicStatus topics.status t/topic!=topic c/cluster=cluster
topicClusterList topics.clusters t/topic!=topic
topicList topics.names
allocateMQ topics.allocate t/topic!=topic i/ipList!=clients:list
deleteSubGroup groups.delete {_TARGET} g/groupName!=group r/removeOffset=clean_offset:bool
setConsumeMode groups.set_request_mode {_TARGET} t/topicName!=topic g/groupName!=group m/mode!=mode:mode q/popShareQueueNum=pop_share_queue_num:int
getConsumerConfig groups.configs_of g/groupName!=group
consumerProgress groups.progress,groups.overview g/groupName=group t/topicName=topic s/showClientIP=client_ips:bool c/cluster=cluster
brokerConsumeStats groups.stats_in_broker b/brokerAddr!=broker o/order=order:bool t/timeoutMillis=timeout_ms:int
producerConnection clients.producers g/producerGroup!=group t/topic!=topic
consumerConnection clients.consumers g/consumerGroup!=group b/brokerAddr=broker
consumerStatus clients.running_info,clients.all_running_infos g/consumerGroup!=group i/clientId=client_id b/brokerAddr=broker s/jstack=jstack:flag
getConsumerStatus clients.status g/group!=group t/topic!=topic i/originClientId=client_address
producer clients.all_producers b/broker!=broker
cloneGroupOffset offsets.clone s/srcGroup!=source d/destGroup!=target t/topic!=topic
resetOffsetByTime offsets.reset,offsets.reset_queue g/group!=group t/topic!=topic s/timestamp=timestamp_ms:time f/force=force:bool b/broker=broker q/queue=queue_id:int o/offset=offset:int c/cluster=cluster
resetOffsetByTimeOld offsets.reset_offline g/group!=group t/topic!=topic s/timestamp!=timestamp_ms:time f/force=force:bool c/cluster=cluster
skipAccumulatedMessage offsets.skip g/group!=group t/topic!=topic f/force=force:bool c/cluster=cluster
clusterList brokers.members c/clusterName=cluster
brokerStatus brokers.runtime_info,brokers.runtime_infos {_TARGET}
getBrokerConfig brokers.config,brokers.configs {_TARGET}
updateBrokerConfig brokers.update_config {_TARGET} a/updateAllBroker=slaves:bool k/key!=change_key v/value!=change_value
cleanExpiredCQ brokers.clean_expired_queues b/brokerAddr=broker c/cluster=cluster
cleanUnusedTopic brokers.clean_unused_topics b/brokerAddr=broker c/cluster=cluster
deleteExpiredCommitLog brokers.delete_expired_commit_log b/brokerAddr=broker c/cluster=cluster
resetMasterFlushOffset brokers.reset_master_flush_offset b/brokerAddr!=broker o/offset!=offset:int
haStatus brokers.ha_status,brokers.ha_statuses {_TARGET}
getColdDataFlowCtrInfo brokers.cold_data_info b/brokerAddr!=broker
updateColdDataFlowCtrGroupConfig brokers.update_cold_data_threshold {_TARGET} g/consumerGroup!=group v/threshold!=threshold:int
removeColdDataFlowCtrGroupConfig brokers.remove_cold_data_threshold {_TARGET} g/consumerGroup!=group
setCommitLogReadAheadMode brokers.set_read_ahead_mode {_TARGET} m/commitLogReadAheadMode!=mode:int
switchTimerEngine brokers.switch_timer_engine {_TARGET} e/engineType!=engine
exportPopRecord brokers.export_pop_records {_TARGET} d/dryRun=dry_run:bool
sendMsgStatus probes.broker b/brokerName!=broker_name s/messageSize=size:int c/count=count:int
checkMsgSendRT probes.topic t/topic!=topic a/amount=amount:int s/size=size:int
clusterRT probes.clusters a/amount=amount:int s/size=size:int c/cluster=cluster
queryMsgById messages.by_id t/topic!=topic i/msgId!=message_id c/cluster=cluster
queryMsgByKey messages.by_key t/topic!=topic k/msgKey!=key b/beginTimestamp=begin_ms:time e/endTimestamp=end_ms:time m/maxNum=max_num:int c/cluster=cluster p/keyType=key_type l/lastKey=last_key
queryMsgByUniqueKey messages.by_unique_key i/msgId!=unique_key t/topic!=topic c/cluster=cluster s/startTime=begin_ms:time e/endTime=end_ms:time
queryMsgByOffset messages.by_offset t/topic!=topic b/brokerName!=broker_name i/queueId!=queue_id:int o/offset!=offset:int
queryMsgTraceById messages.traces i/msgId!=message_id t/traceTopic=trace_topic b/beginTimestamp=begin_ms:time e/endTimestamp=end_ms:time c/maxNum=max_num:int
queryCq messages.consume_queue t/topic!=topic q/queue!=queue_id:int i/index!=index:int c/count=count:int b/broker!=broker g/consumer=group
updateKvConfig name_servers.put_kv s/namespace!=namespace k/key!=key v/value!=value
deleteKvConfig name_servers.delete_kv s/namespace!=namespace k/key!=key
wipeWritePerm name_servers.wipe_write_perm b/brokerName!=broker_name
addWritePerm name_servers.add_write_perm b/brokerName!=broker_name
getNamesrvConfig name_servers.config
updateNamesrvConfig name_servers.update_config k/key!=change_key v/value!=change_value
getSyncStateSet controllers.sync_state,controllers.sync_state_of_cluster a/controllerAddress!=controller c/clusterName=cluster b/brokerName=broker_names:list
getControllerMetaData controllers.metadata a/controllerAddress!=controller
getControllerConfig controllers.config a/controllerAddress!=controller
updateControllerConfig controllers.update_config a/controllerAddress!=controllers:list k/key!=change_key v/value!=change_value
electMaster controllers.elect_master a/controllerAddress!=controller b/brokerId!=broker_id:int bn/brokerName!=broker_name c/clusterName!=cluster
createUser access.create_user {_TARGET} u/username!=username p/password!=password t/userType=user_type
updateUser access.update_user {_TARGET} u/username!=username p/password=password t/userType=user_type s/userStatus=user_status
deleteUser access.delete_user {_TARGET} u/username!=username
getUser access.user b/brokerAddr!=broker u/username!=username
listUser access.users b/brokerAddr!=broker f/filter=name_filter
copyUser access.copy_users f/fromBroker!=source t/toBroker!=target u/usernames=usernames:list
createAcl access.create_acl {_TARGET} s/subject!=subject r/resources!=resources:list a/actions!=actions:list i/sourceIp=source_ips:list d/decision!=decision
updateAcl access.update_acl {_TARGET} s/subject!=subject r/resources!=resources:list a/actions!=actions:list i/sourceIp=source_ips:list d/decision!=decision
deleteAcl access.delete_acl {_TARGET} s/subject!=subject r/resources=resource
getAcl access.acl b/brokerAddr!=broker s/subject!=subject
listAcl access.acls b/brokerAddr!=broker s/subject=subject_filter r/resource=resource_filter
copyAcl access.copy_acls f/fromBroker!=source t/toBroker!=target s/subjects=subjects:list
statsAll traffic.topic,traffic.all a/activeTopic=active:flag t/topic=topic
"""


@attrs.frozen
class Option:
    """An option as it is typed, and the parameter that it is for."""

    letter: str
    name: str
    parameter: str
    kind: str = "text"
    is_required: bool = False


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
        return int(text)
    if kind == "bool":
        if text.strip().lower() not in ("true", "false"):
            raise ValueError(f"{text!r} is neither true nor false")
        return text.strip().lower() == "true"
    if kind == "list":
        return [word.strip() for word in text.split(",") if word.strip()]
    if kind == "pairs":
        parts = [word.partition("=") for word in text.split(",") if word.strip()]
        return {name.strip(): value.strip() for name, _, value in parts}
    if kind == "mode":
        return MessageRequestMode(text.strip().upper())
    if kind == "time":
        if text == "now":
            return now_ms
        if text.lstrip("-").isdecimal():
            return int(text)
        return int(datetime.strptime(f"{text}000", "%Y-%m-%d#%H:%M:%S:%f").timestamp() * 1000)
    return text
