"""How are consumer groups created, changed, listed and deleted?

Stands for the group half of ``AdminBrokerProcessor``.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.broker.admin.parts import part_of
from txrocketmq.broker.consumer_offsets import ConsumerOffsets
from txrocketmq.broker.groups import SubscriptionGroups
from txrocketmq.codec.bodies import (
    GroupForbidden,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
    decode_body,
    encode_body,
)
from txrocketmq.codec.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import ResponseError
from txrocketmq.model.attributes import GROUP_ATTRIBUTES, AttributeFault, apply_change
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.names import group_fault
from txrocketmq.model.topic import MAX_QUEUES
from txrocketmq.remoting.dispatch import Reply, Request

READ_BIT = 2


class GroupAdmin:
    """Serves what operators do with consumer groups.

    :param forget: told the name of each deleted group, by whoever keeps figures of it.
    """

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        forget: Callable[[str], None],
    ) -> None:
        self._config = config
        self._groups = groups
        self._offsets = offsets
        self._forget = forget

    def update_group(self, request: Request[None]) -> Reply | Deferred[Reply]:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: create a group or change its settings."""
        return self._update([decode_body(SubscriptionGroupConfig, request.body)])

    def update_groups(self, request: Request[None]) -> Reply | Deferred[Reply]:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: several at once; all of them, or none when one is refused."""
        return self._update(decode_body(SubscriptionGroupList, request.body).group_config_list)

    def _update(self, wanted: list[SubscriptionGroupConfig]) -> Reply | Deferred[Reply]:
        for group in wanted:
            fault = group_fault(group.group_name)
            if fault is not None:
                raise ResponseError(ResponseCode.INVALID_PARAMETER, fault)
            if group.retry_queue_nums > MAX_QUEUES:
                raise ResponseError(
                    ResponseCode.INVALID_PARAMETER,
                    f"retryQueueNums {group.retry_queue_nums} is more than {MAX_QUEUES}",
                )
            known = self._groups.get(group.group_name or "")
            current = None if known is None else known.attributes or {}
            try:
                group.attributes = apply_change(GROUP_ATTRIBUTES, current, group.attributes)
            except AttributeFault as error:
                raise ResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        for group in wanted:
            self._groups.update(group)
        return self._groups.file.kept(Reply())

    def delete_group(
        self, request: Request[DeleteSubscriptionGroupRequestHeader]
    ) -> Reply | Deferred[Reply]:
        """DELETE_SUBSCRIPTIONGROUP: forget a group's settings, and where it stands when asked to.

        Where groups are created by themselves, the next heartbeat of a live member makes it anew.
        """
        header = request.header
        name = header.group_name
        self._groups.delete(name)
        if header.clean_offset:
            self._offsets.remove_group(name)
        if self._config.auto_delete_unused_stats:
            self._forget(name)
        self._log.info(
            "{client} deleted group {group}, {offsets} its offsets",
            client=request.connection.remote_text,
            group=name,
            offsets="with" if header.clean_offset else "without",
        )
        return self._groups.file.kept(Reply())

    def get_group(self, request: Request[GetSubscriptionGroupConfigRequestHeader]) -> Reply:
        """GET_SUBSCRIPTIONGROUP_CONFIG: the settings of one group; an unknown one is created where the broker may."""
        group = self._groups.find(request.header.group)
        if group is None:
            raise ResponseError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker"
            )
        return Reply(body=encode_body(group))

    def get_all_groups(self, request: Request[None]) -> Reply:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: the table of groups, or the part of it that the request names."""
        wrapper = self._groups.to_wrapper()
        table = wrapper.subscription_group_table
        part = part_of(
            self._config,
            table,
            self._groups.data_version,
            request.ext_fields,
            ("dataVersion", "groupSeq", "maxGroupNum"),
        )
        if part is not None:
            wrapper = SubscriptionGroupWrapper(
                subscription_group_table={name: table[name] for name in part},
                forbidden_table={
                    name: topics for name, topics in wrapper.forbidden_table.items() if name in part
                },
                data_version=self._groups.data_version,
            )
        return Reply(
            header=GetAllSubscriptionGroupResponseHeader(total_group_num=len(table)),
            body=encode_body(wrapper),
        )

    def update_forbidden(
        self, request: Request[UpdateGroupForbiddenRequestHeader]
    ) -> Reply | Deferred[Reply]:
        """UPDATE_AND_GET_GROUP_FORBIDDEN: whether a group may read a topic; changed first when the request says so."""
        header = request.header
        if header.readable is not None:
            self._groups.forbid(header.group, header.topic, READ_BIT, not header.readable)
        readable = not self._groups.is_forbidden(header.group, header.topic, READ_BIT)
        body = GroupForbidden(group=header.group, topic=header.topic, readable=readable)
        return self._groups.file.kept(Reply(remark="", body=encode_body(body)))
