"""Every command of mqadmin has its operation here, or a reason why it has none."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from golden import protocol_table
from twisted.internet.task import Clock

import txrocketmq.client.admin
import txrocketmq.client.api
from txrocketmq.client.admin.admin import Admin
from txrocketmq.client.admin.messages import decode_message_id
from txrocketmq.client.config import ClientConfig

LOCAL_FILES = "reads a file on the machine where it runs, asks no server"
PROGRAM = "a program that runs for good; it is made of groups.overview, groups.progress and clients.all_running_infos"

#: Command to the operations that do it, separated by blanks.
OPERATIONS = {
    "updateTopic": "topics.create topics.apply",
    "updateTopicList": "topics.create_list",
    "deleteTopic": "topics.delete",
    "updateSubGroup": "groups.create",
    "updateSubGroupList": "groups.create_list",
    "setConsumeMode": "groups.set_request_mode",
    "deleteSubGroup": "groups.delete",
    "updateBrokerConfig": "brokers.update_config",
    "updateTopicPerm": "topics.update_perm",
    "topicRoute": "topics.route",
    "topicStatus": "topics.status",
    "topicClusterList": "topics.clusters",
    "addBroker": "brokers.add_to_container",
    "removeBroker": "brokers.remove_from_container",
    "resetMasterFlushOffset": "brokers.reset_master_flush_offset",
    "brokerStatus": "brokers.runtime_info brokers.runtime_infos",
    "queryMsgById": "messages.by_id messages.consume_directly message_track messages.send",
    "queryMsgByKey": "messages.by_key",
    "queryMsgByUniqueKey": "messages.by_unique_key messages.consume_directly message_track",
    "queryMsgByOffset": "messages.by_offset",
    "queryMsgTraceById": "messages.traces",
    "printMsg": "messages.scan",
    "printMsgByQueue": "messages.scan",
    "sendMsgStatus": "probes.broker",
    "brokerConsumeStats": "groups.stats_in_broker",
    "producerConnection": "clients.producers",
    "consumerConnection": "clients.consumers",
    "consumerProgress": "groups.progress groups.overview",
    "consumerStatus": "clients.running_info clients.all_running_infos",
    "cloneGroupOffset": "offsets.clone offsets.clone_at_brokers",
    "producer": "clients.all_producers",
    "clusterList": "brokers.members brokers.cluster_info",
    "topicList": "topics.names topics.clusters topics.consumer_groups",
    "updateKvConfig": "name_servers.put_kv",
    "deleteKvConfig": "name_servers.delete_kv",
    "wipeWritePerm": "name_servers.wipe_write_perm",
    "addWritePerm": "name_servers.add_write_perm",
    "resetOffsetByTime": "offsets.reset offsets.reset_queue",
    "skipAccumulatedMessage": "offsets.skip",
    "updateOrderConf": "topics.order topics.put_order topics.delete_order",
    "cleanExpiredCQ": "brokers.clean_expired_queues",
    "deleteExpiredCommitLog": "brokers.delete_expired_commit_log",
    "cleanUnusedTopic": "brokers.clean_unused_topics",
    "statsAll": "traffic.all traffic.topic brokers.stats",
    "allocateMQ": "topics.allocate",
    "checkMsgSendRT": "probes.topic",
    "clusterRT": "probes.clusters",
    "getNamesrvConfig": "name_servers.config",
    "updateNamesrvConfig": "name_servers.update_config",
    "getBrokerConfig": "brokers.config brokers.configs",
    "getConsumerConfig": "groups.configs_of",
    "queryCq": "messages.consume_queue",
    "sendMessage": "messages.send",
    "consumeMessage": "messages.scan",
    "updateStaticTopic": "static_topics.grow static_topics.create static_topics.apply_file",
    "remappingStaticTopic": "static_topics.move static_topics.apply_file",
    "exportMetadata": "exports.metadata",
    "exportConfigs": "exports.configs",
    "exportMetrics": "exports.metrics",
    "exportPopRecord": "brokers.export_pop_records",
    "haStatus": "brokers.ha_status brokers.ha_statuses",
    "getSyncStateSet": "controllers.sync_state controllers.sync_state_of_cluster",
    "getBrokerEpoch": "brokers.epochs",
    "getControllerMetaData": "controllers.metadata",
    "getControllerConfig": "controllers.config",
    "updateControllerConfig": "controllers.update_config",
    "electMaster": "controllers.elect_master",
    "cleanBrokerMetadata": "controllers.clean_broker_data",
    "getColdDataFlowCtrInfo": "brokers.cold_data_info",
    "updateColdDataFlowCtrGroupConfig": "brokers.update_cold_data_threshold",
    "removeColdDataFlowCtrGroupConfig": "brokers.remove_cold_data_threshold",
    "setCommitLogReadAheadMode": "brokers.set_read_ahead_mode",
    "createUser": "access.create_user",
    "updateUser": "access.update_user",
    "deleteUser": "access.delete_user",
    "getUser": "access.user",
    "listUser": "access.users",
    "copyUser": "access.copy_users",
    "createAcl": "access.create_acl",
    "updateAcl": "access.update_acl",
    "deleteAcl": "access.delete_acl",
    "getAcl": "access.acl",
    "listAcl": "access.acls",
    "copyAcl": "access.copy_acls",
    "rocksDBConfigToJson": "brokers.export_rocksdb_config",
    "checkRocksdbCqWriteProgress": "brokers.check_rocksdb_queues",
    "consumer": "clients.consumers clients.all_running_infos",
    "getConsumerStatus": "clients.status",
    "resetOffsetByTimeOld": "offsets.reset_offline",
    "switchTimerEngine": "brokers.switch_timer_engine",
    "DecodeMessageId": "decode_message_id",
}
NONE = {
    "startMonitoring": PROGRAM,
    "exportMetadataInRocksDB": LOCAL_FILES,
    "dumpCompactionLog": LOCAL_FILES,
}
COMMANDS = {command["name"]: command for command in protocol_table("admin_commands")}


def sources() -> str:
    places = [Path(txrocketmq.client.api.__file__)]
    places += sorted(Path(txrocketmq.client.admin.__file__).parent.glob("*.py"))
    places.append(Path(txrocketmq.client.__path__[0]) / "producer" / "outgoing.py")
    places.append(Path(txrocketmq.client.__path__[0]) / "producer" / "sending.py")
    return "\n".join(place.read_text() for place in places)


def test_every_command_is_in_the_table() -> None:
    assert set(OPERATIONS) | set(NONE) == set(COMMANDS)
    assert not set(OPERATIONS) & set(NONE)


@pytest.mark.parametrize("command", OPERATIONS)
def test_the_operations_are_there(command: str) -> None:
    admin = Admin(Clock(), ClientConfig(namesrv_addr="192.0.2.1:9876"))
    for name in OPERATIONS[command].split():
        if name == decode_message_id.__name__:
            continue
        found: object = admin
        for part in name.split("."):
            found = getattr(found, part)
        assert callable(found)
        assert inspect.getdoc(found)


def test_every_request_of_mqadmin_is_made() -> None:
    asked = {code for name in OPERATIONS for code in COMMANDS[name]["request_codes"]}
    text = sources()
    assert [code for code in sorted(asked) if f"RequestCode.{code}" not in text] == []
