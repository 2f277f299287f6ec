"""The three roles as ``twistd`` commands."""

from twisted.application.service import ServiceMaker

namesrv = ServiceMaker(
    "RocketMQ name server",
    "txrocketmq.service.namesrv_tap",
    "RocketMQ name server",
    "rocketmq-namesrv",
)

broker = ServiceMaker(
    "RocketMQ broker",
    "txrocketmq.service.broker_tap",
    "RocketMQ broker with its message store",
    "rocketmq-broker",
)

all_in_one = ServiceMaker(
    "RocketMQ all in one",
    "txrocketmq.service.allinone_tap",
    "RocketMQ name server and broker in one process",
    "rocketmq",
)
