"""Bodies of users and access rules.

Stands for the official classes of the same names.
"""

from __future__ import annotations

from txrocketmq.model.bean import Bean


class UserInfo(Bean, kw_only=True):
    """A user."""

    password: str | None = None
    user_status: str | None = None
    user_type: str | None = None
    username: str | None = None


class PolicyEntryInfo(Bean, kw_only=True):
    """One rule: resource, actions, source addresses, decision. What an update leaves out stays as it is."""

    actions: list[str] | None = None
    decision: str | None = None
    resource: str | None = None
    source_ips: list[str] | None = None


class PolicyInfo(Bean, kw_only=True):
    """Rules of one policy type."""

    entries: list[PolicyEntryInfo] | None = None
    policy_type: str | None = None


class AclInfo(Bean, kw_only=True):
    """A subject's policies."""

    policies: list[PolicyInfo] | None = None
    subject: str | None = None
