"""Which fields travel with requests and responses about users and access control lists.

One class for each official header class of the same name; see `txrocketmq.codec.headers.base` for the rules.
"""

from __future__ import annotations

from txrocketmq.codec.headers.base import Header


class CreateAclRequestHeader(Header, kw_only=True):
    """Official ``CreateAclRequestHeader``: request header of ``AUTH_CREATE_ACL`` (3006)."""

    subject: str | None = None


class CreateUserRequestHeader(Header, kw_only=True):
    """Official ``CreateUserRequestHeader``: request header of ``AUTH_CREATE_USER`` (3001)."""

    username: str | None = None


class DeleteAclRequestHeader(Header, kw_only=True):
    """Official ``DeleteAclRequestHeader``: request header of ``AUTH_DELETE_ACL`` (3008)."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class DeleteUserRequestHeader(Header, kw_only=True):
    """Official ``DeleteUserRequestHeader``: request header of ``AUTH_DELETE_USER`` (3003)."""

    username: str | None = None


class GetAclRequestHeader(Header, kw_only=True):
    """Official ``GetAclRequestHeader``: request header of ``AUTH_GET_ACL`` (3009)."""

    subject: str | None = None


class GetUserRequestHeader(Header, kw_only=True):
    """Official ``GetUserRequestHeader``: request header of ``AUTH_GET_USER`` (3004)."""

    username: str | None = None


class ListAclsRequestHeader(Header, kw_only=True):
    """Official ``ListAclsRequestHeader``: request header of ``AUTH_LIST_ACL`` (3010)."""

    subject_filter: str | None = None
    resource_filter: str | None = None


class ListUsersRequestHeader(Header, kw_only=True):
    """Official ``ListUsersRequestHeader``: request header of ``AUTH_LIST_USER`` (3005)."""

    filter: str | None = None


class UpdateAclRequestHeader(Header, kw_only=True):
    """Official ``UpdateAclRequestHeader``: request header of ``AUTH_UPDATE_ACL`` (3007)."""

    subject: str | None = None


class UpdateUserRequestHeader(Header, kw_only=True):
    """Official ``UpdateUserRequestHeader``: request header of ``AUTH_UPDATE_USER`` (3002)."""

    username: str | None = None
