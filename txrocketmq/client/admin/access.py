"""Users and access rules of 5.x brokers: made, changed, deleted, looked up, copied from broker to broker."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

import msgspec

from txrocketmq.client.admin.core import AdminCore
from txrocketmq.codec.bodies.security import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from txrocketmq.codec.bodies.wire import decode_bodies, decode_body, encode_body
from txrocketmq.codec.headers import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    DeleteUserRequestHeader,
    GetAclRequestHeader,
    GetUserRequestHeader,
    Header,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UpdateAclRequestHeader,
    UpdateUserRequestHeader,
)
from txrocketmq.errors import MQClientError
from txrocketmq.model.codes import RequestCode

T = TypeVar("T")
K = TypeVar("K", bound=msgspec.Struct)


class AccessAdmin:
    """Users and access rules. A subject is ``User:name``, a resource ``Topic:name``, ``Group:prefix*``, ``Cluster:*`` and so on."""

    def __init__(self, core: AdminCore) -> None:
        self._core = core

    async def _change(
        self,
        what: str,
        code: RequestCode,
        header: Header,
        body: msgspec.Struct | None,
        broker: str | None,
        cluster: str | None,
    ) -> list[str]:
        data = b"" if body is None else encode_body(body)

        async def call(address: str) -> None:
            await self._core.ask(address, code, header, data)

        targets = await self._core.targets(broker, cluster, slaves=True)
        return list(await self._core.spread(what, targets, call))

    async def _get(self, kind: type[K], broker: str, code: RequestCode, header: Header) -> K | None:
        answer = await self._core.ask(broker, code, header)
        return decode_body(kind, answer.body) if answer.body else None

    async def _list(self, kind: type[K], broker: str, code: RequestCode, header: Header) -> list[K]:
        answer = await self._core.ask(broker, code, header)
        return decode_bodies(kind, answer.body) if answer.body else []

    # ----------------------------------------------------------------- users

    async def create_user(
        self,
        username: str,
        password: str,
        user_type: str | None = None,
        *,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> list[str]:
        """Create a user on brokers, slaves too (``createUser``); the brokers that did it.

        :param user_type: ``Normal`` or ``Super``.
        """
        user = UserInfo(username=username, password=password, user_type=user_type)
        header = CreateUserRequestHeader(username=username)
        code = RequestCode.AUTH_CREATE_USER
        return await self._change(f"user {username}", code, header, user, broker, cluster)

    async def update_user(
        self,
        username: str,
        *,
        password: str | None = None,
        user_type: str | None = None,
        user_status: str | None = None,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> list[str]:
        """Change a user (``updateUser``); what is not given stays as it is.

        :param user_status: ``enable`` or ``disable``.
        """
        user = UserInfo(
            username=username, password=password, user_type=user_type, user_status=user_status
        )
        header = UpdateUserRequestHeader(username=username)
        code = RequestCode.AUTH_UPDATE_USER
        return await self._change(f"user {username}", code, header, user, broker, cluster)

    async def delete_user(
        self, username: str, *, broker: str | None = None, cluster: str | None = None
    ) -> list[str]:
        """Delete a user (``deleteUser``); the brokers that did it."""
        header = DeleteUserRequestHeader(username=username)
        code = RequestCode.AUTH_DELETE_USER
        return await self._change(f"user {username}", code, header, None, broker, cluster)

    async def user(self, broker: str, username: str) -> UserInfo | None:
        """A user as one broker has it (``getUser``); None when it has none."""
        header = GetUserRequestHeader(username=username)
        return await self._get(UserInfo, broker, RequestCode.AUTH_GET_USER, header)

    async def users(self, broker: str, name_filter: str | None = None) -> list[UserInfo]:
        """All users of a broker whose name holds a text (``listUser``)."""
        header = ListUsersRequestHeader(filter=name_filter)
        return await self._list(UserInfo, broker, RequestCode.AUTH_LIST_USER, header)

    async def copy_users(
        self, source: str, target: str, usernames: Iterable[str] | None = None
    ) -> list[str]:
        """Copy users from broker to broker, all or these (``copyUser``); their names.

        :raises MQClientError: the source has no such user; those before it are copied.
        """
        found = await self._chosen(
            usernames, lambda name: self.user(source, name), lambda: self.users(source), "user"
        )
        copied = []
        for user in found:
            name = user.username or ""
            if await self.user(target, name) is None:
                code = RequestCode.AUTH_CREATE_USER
                header: Header = CreateUserRequestHeader(username=name)
            else:
                code = RequestCode.AUTH_UPDATE_USER
                header = UpdateUserRequestHeader(username=name)
            await self._change(f"user {name}", code, header, user, target, None)
            copied.append(name)
        return copied

    async def _chosen(
        self,
        names: Iterable[str] | None,
        get: Callable[[str], Coroutine[Any, Any, T | None]],
        get_all: Callable[[], Coroutine[Any, Any, list[T]]],
        what: str,
    ) -> list[T]:
        if names is None:
            return await get_all()
        found = []
        for name in names:
            one = await get(name)
            if one is None:
                raise MQClientError(f"there is no {what} {name} to copy")
            found.append(one)
        return found

    # ----------------------------------------------------------------- rules

    async def create_acl(
        self,
        subject: str,
        resources: Iterable[str],
        actions: Iterable[str],
        decision: str,
        source_ips: Iterable[str] | None = None,
        *,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> list[str]:
        """Create rules of a subject (``createAcl``); the brokers that did it.

        :param actions: of ``Pub``, ``Sub``, ``Create``, ``Update``, ``Delete``, ``Get``, ``List``, ``All``.
        :param decision: ``Allow`` or ``Deny``.
        """
        info = acl_info(subject, resources, actions, decision, source_ips)
        header = CreateAclRequestHeader(subject=subject)
        code = RequestCode.AUTH_CREATE_ACL
        return await self._change(f"rules of {subject}", code, header, info, broker, cluster)

    async def update_acl(
        self,
        subject: str,
        resources: Iterable[str],
        actions: Iterable[str],
        decision: str,
        source_ips: Iterable[str] | None = None,
        *,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> list[str]:
        """Change rules of a subject, resource by resource (``updateAcl``); the brokers that did it."""
        info = acl_info(subject, resources, actions, decision, source_ips)
        header = UpdateAclRequestHeader(subject=subject)
        code = RequestCode.AUTH_UPDATE_ACL
        return await self._change(f"rules of {subject}", code, header, info, broker, cluster)

    async def delete_acl(
        self,
        subject: str,
        resource: str | None = None,
        *,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> list[str]:
        """Delete a subject's rules, or those for one resource (``deleteAcl``); the brokers that did it."""
        header = DeleteAclRequestHeader(subject=subject, resource=resource)
        code = RequestCode.AUTH_DELETE_ACL
        return await self._change(f"rules of {subject}", code, header, None, broker, cluster)

    async def acl(self, broker: str, subject: str) -> AclInfo | None:
        """A subject's rules as one broker has them (``getAcl``); None when it has none."""
        header = GetAclRequestHeader(subject=subject)
        return await self._get(AclInfo, broker, RequestCode.AUTH_GET_ACL, header)

    async def acls(
        self,
        broker: str,
        subject_filter: str | None = None,
        resource_filter: str | None = None,
    ) -> list[AclInfo]:
        """All rules of a broker whose subject and resource hold a text (``listAcl``)."""
        header = ListAclsRequestHeader(
            subject_filter=subject_filter, resource_filter=resource_filter
        )
        return await self._list(AclInfo, broker, RequestCode.AUTH_LIST_ACL, header)

    async def copy_acls(
        self, source: str, target: str, subjects: Iterable[str] | None = None
    ) -> list[str]:
        """Copy rules from broker to broker, of all subjects or of these (``copyAcl``); the subjects.

        :raises MQClientError: the source has no such subject; those before it are copied.
        """
        found = await self._chosen(
            subjects, lambda name: self.acl(source, name), lambda: self.acls(source), "subject"
        )
        copied = []
        for info in found:
            subject = info.subject or ""
            if await self.acl(target, subject) is None:
                code = RequestCode.AUTH_CREATE_ACL
                header: Header = CreateAclRequestHeader(subject=subject)
            else:
                code = RequestCode.AUTH_UPDATE_ACL
                header = UpdateAclRequestHeader(subject=subject)
            await self._change(f"rules of {subject}", code, header, info, target, None)
            copied.append(subject)
        return copied


def acl_info(
    subject: str,
    resources: Iterable[str],
    actions: Iterable[str],
    decision: str,
    source_ips: Iterable[str] | None = None,
) -> AclInfo:
    """One rule for each resource, all alike, as ``AclInfo.of`` makes them."""
    entries = [
        PolicyEntryInfo(
            resource=resource,
            actions=list(actions),
            decision=decision,
            source_ips=None if source_ips is None else list(source_ips),
        )
        for resource in resources
    ]
    return AclInfo(subject=subject, policies=[PolicyInfo(entries=entries)])
