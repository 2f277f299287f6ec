"""When does a key act: at once when it is changed at run time, or only when the process starts?

Keys that neither set names have no effect here; they are accepted, kept and shown. A test compares both sets with the places that
read the attributes, so a key that begins to act has to be put into one of them.
"""

from __future__ import annotations

import enum


class Effect(enum.Enum):
    """What changing a key at run time does."""

    AT_ONCE = "acts at once"
    AT_START = "needs a restart"
    NONE = "has no effect here"


AT_START = frozenset(
    {
        # Who the process is and where it listens.
        *(
            "bindAddress",
            "listenPort",
            "haListenPort",
            "brokerIP1",
            "brokerIP2",
            "isInBrokerContainer",
        ),
        *("brokerName", "brokerClusterName", "brokerId", "brokerRole", "enableSlaveActingMaster"),
        # Topics that are made at the start.
        *("brokerTopicEnable", "clusterTopicEnable", "defaultTopicQueueNums", "msgTraceTopicName"),
        *("reviveQueueNum", "traceTopicEnable"),
        # Name servers that others tell.
        *("fetchNamesrvAddrByAddressServer", "fetchNamesrvAddrInterval"),
        *("fetchNameSrvAddrByDnsLookup", "updateNameServerAddrPeriod"),
        # Files and their sizes.
        *("storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths"),
        *("mappedFileSizeCommitLog", "warmMapedFileEnable"),
        *("mappedFileSizeConsumeQueue", "mapperFileSizeBatchConsumeQueue", "maxHashSlotNum"),
        *("maxIndexNum", "checkCRCOnRecover", "timerWheelEnable"),
        *("timerPrecisionMs", "mappedFileSizeTimerLog"),
        *("enableCompaction", "compactionMappedFileSize", "compactionCqMappedFileSize"),
        *("compactionThreadNum", "maxOffsetMapSize"),
        *("enabledAppendPropCRC", "forceVerifyPropCRC", "enableLmqStats"),
        *("enableDetailStat", "brokerPlugins", "usePIDColdCtrStrategy", "dataReadAheadEnable"),
        *("enableConsumeQueueExt", "mappedFileSizeConsumeQueueExt", "bitMapLengthConsumeQueueExt"),
        *("expectConsumerNumUseFilter", "maxErrorRateOfBloomFilter"),
        *("kvConfigPath", "configStorePath", "brokerConfigPath"),
        # Links, and the bounds of their queues.
        *(
            "clientAsyncSemaphoreValue",
            "clientChannelMaxIdleTimeSeconds",
            "clientCloseSocketIfTimeout",
        ),
        *("connectTimeoutMillis", "maxReconnectIntervalTimeSeconds", "writeBufferHighWaterMark"),
        *("serverChannelMaxIdleTimeSeconds", "serverSocketBacklog", "sendThreadPoolQueueCapacity"),
        *("adminBrokerThreadPoolQueueCapacity", "clientManagerThreadPoolQueueCapacity"),
        *("consumerManagerThreadPoolQueueCapacity", "heartbeatThreadPoolQueueCapacity"),
        *("queryThreadPoolQueueCapacity", "flushConsumerOffsetInterval"),
        # Delays and transactions.
        *("endTransactionPoolQueueCapacity", "flushDelayOffsetInterval"),
        "transactionMetricFlushInterval",
        # POP.
        *("ackThreadPoolQueueCapacity", "reviveInterval"),
        # Request-reply.
        "replyThreadPoolQueueCapacity",
        # Replication.
        *("haMasterAddress", "brokerHeartbeatInterval", "syncBrokerMemberGroupPeriod"),
        "skipPreOnline",
        # Controller mode.
        *("enableControllerMode", "storePathEpochFile", "storePathBrokerIdentity"),
        *("syncBrokerMetadataPeriod", "syncControllerMetadataPeriod", "checkSyncStateSetPeriod"),
    }
)
"""Keys that are read when the process starts."""

AT_ONCE = frozenset(
    {
        # Controller mode.
        *("controllerAddr", "controllerHeartBeatTimeoutMills", "brokerElectionPriority"),
        *("allAckInSyncStateSet", "haMaxTimeSlaveNotCatchup", "syncFromLastFile", "asyncLearner"),
        # Registration.
        *("namesrvAddr", "brokerPermission", "compressedRegister", "enableSingleTopicRegister"),
        *("enableSplitRegistration", "splitRegistrationSize", "forceRegister"),
        *("registerBrokerTimeoutMills", "registerNameServerPeriod", "brokerNotActiveTimeoutMillis"),
        # Topics, groups and clients.
        *("autoCreateTopicEnable", "autoCreateSubscriptionGroup", "enableCreateSysGroup"),
        *(
            "enableMixedMessageType",
            "validateSystemTopicWhenUpdateTopic",
            "clearRetryTopicWhenDeleteTopic",
        ),
        *("channelExpiredTimeout", "enableRegisterProducer", "rejectPullConsumerEnable"),
        *(
            "notifyConsumerIdsChangedEnable",
            "realTimeNotifyConsumerChange",
            "autoDeleteUnusedStats",
        ),
        *(
            "enableSplitMetadata",
            "splitMetadataSize",
            "configBlackList",
            "useServerSideResetOffset",
        ),
        "consumerOffsetUpdateVersionStep",
        # The stop.
        *("enableShutdownGracefully", "shutdownWaitTimeSeconds"),
        # Sends and pulls.
        *("regionId", "traceOn", "startAcceptSendRequestTimeStamp", "maxMessageSize"),
        *("brokerFastFailureEnable", "waitTimeMillsInSendQueue", "osPageCacheBusyTimeOutMills"),
        *("longPollingEnable", "shortPollingTimeMills", "slaveReadEnable", "litePullMessageEnable"),
        *("pullThreadPoolQueueCapacity", "maxFilterMessageSize", "accessMessageInMemoryMaxRatio"),
        "accessMessageInMemoryHotRatio",
        *("maxTransferBytesOnMessageInDisk", "maxTransferBytesOnMessageInMemory"),
        *("maxTransferCountOnMessageInDisk", "maxTransferCountOnMessageInMemory"),
        *("enableLmq", "enableMultiDispatch", "maxLmqConsumeQueueNum"),
        *("enableCalcFilterBitMap", "enablePropertyFilter", "filterDataCleanTimeSpan"),
        *("maxMsgsNumBatch", "defaultQueryMaxNum", "offsetCheckInSlave", "readUnCommitted"),
        # Delays and transactions.
        *("delayOffsetUpdateVersionStep", "enableScheduleMessageStats"),
        *("storeReplyMessageEnable", "forwardTimeout"),
        # A slave in its master's place.
        "enableRemoteEscape",
        # Order locks over replicas.
        *("lockInStrictMode", "totalReplicas"),
        # Slow reads.
        *("coldDataFlowControlEnable", "cgColdReadThreshold", "globalColdReadThreshold"),
        *("coldCtrStrategyEnable", "diskFallRecorded", "enableBroadcastOffsetStore"),
        *("broadcastOffsetExpireSecond", "broadcastOffsetExpireMaxSecond"),
        *("disableConsumeIfConsumerReadSlowly", "consumerFallbehindThreshold"),
        *("rejectTransactionMessage", "transactionTimeOut", "transactionCheckInterval"),
        *("transactionCheckMax", "transactionOpMsgMaxSize", "transactionOpBatchInterval"),
        # Timed messages.
        *("timerMaxDelaySec", "timerRollWindowSlot", "timerCongestNumEachSlot"),
        *("timerFlushIntervalMs", "timerStopEnqueue", "timerStopDequeue", "timerSkipUnknownError"),
        *("recallMessageEnable", "allowRecallWhenBrokerNotWriteable"),
        "appendTopicForTimerDeleteKey",
        "compactionScheduleInternal",
        # POP.
        *("popPollingSize", "popPollingMapSize", "maxPopPollingSize", "enableRetryTopicV2"),
        *("popLongPollingForceNotifyInterval", "enableNotifyAfterPopOrderLockRelease"),
        *("enablePopBufferMerge", "popCkStayBufferTime", "popCkStayBufferTimeOut"),
        *("popCkMaxBufferSize", "popCkOffsetMaxQueueSize", "enablePopBatchAck"),
        *("popFromRetryProbability", "retrieveMessageFromPopRetryTopicV1"),
        *("popFromRetryProbabilityForPriority", "priorityOrderAsc"),
        *("initPopOffsetByCheckMsgInMem", "popResponseReturnActualRetryTopic"),
        *("enablePopMessageThreshold", "popInflightMessageThreshold"),
        *("serverLoadBalancerEnable", "defaultMessageRequestMode", "defaultPopShareQueueNum"),
        "loadBalancePollNameServerInterval",
        # Flushing, queues, index.
        *(
            "flushDiskType",
            "syncFlushTimeout",
            "flushIntervalCommitLog",
            "flushCommitLogLeastPages",
        ),
        *("flushCommitLogThoroughInterval", "flushIntervalConsumeQueue"),
        *("flushConsumeQueueLeastPages", "flushConsumeQueueThoroughInterval"),
        *("messageIndexEnable", "messageDelayLevel"),
        # Deletion and full disks.
        *("fileReservedTime", "deleteWhen", "cleanResourceInterval", "cleanFileForciblyEnable"),
        *("deleteCommitLogFilesInterval", "deleteConsumeQueueFilesInterval", "deleteFileBatchMax"),
        *("destroyMapedFileIntervalForcibly", "redeleteHangedFileInterval"),
        *("replicasPerDiskPartition", "logicalDiskSpaceCleanForciblyThreshold"),
        *("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio"),
        *("correctLogicMinOffsetForceInterval", "correctLogicMinOffsetSleepInterval"),
        # Replication.
        *("haSendHeartbeatInterval", "haHousekeepingInterval", "haTransferBatchSize"),
        *("haMaxGapNotInSync", "slaveTimeout", "inSyncReplicas", "minInSyncReplicas"),
        *("enableAutoInSyncReplicas", "haFlowControlEnable", "maxHaTransferByteInSecond"),
        *("syncMasterFlushOffsetWhenStartup", "compatibleWithOldNameSrv"),
        "sendHeartbeatTimeoutMillis",
        # Name server.
        *("deleteTopicWithBrokerRegistration", "enableAllTopicList", "enableTopicList"),
        *("needWaitForService", "waitSecondsForService", "orderMessageEnable"),
        *("returnOrderTopicConfigToBroker", "scanNotActiveBrokerInterval"),
        *("supportActingMaster", "notifyMinBrokerIdChanged"),
    }
)
"""Keys that are read whenever they are needed."""


def effect_of(name: str) -> Effect:
    """What changing the key of this official name does."""
    if name in AT_ONCE:
        return Effect.AT_ONCE
    return Effect.AT_START if name in AT_START else Effect.NONE
