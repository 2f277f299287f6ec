"""The name servers' key-value table: said to each of them, read from one.

Stands for ``putKVConfigValue``, ``getKVConfigValue`` and ``deleteKVConfigValue``.
"""

from __future__ import annotations

from txrocketmq.client.admin.core import AdminCore
from txrocketmq.codec.headers import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    PutKVConfigRequestHeader,
)
from txrocketmq.model.codes import RequestCode


async def get_kv(core: AdminCore, namespace: str, key: str) -> str:
    """A value of the name servers' key-value table; `BrokerError` when there is none."""
    answer = await core.name_server(
        RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace=namespace, key=key)
    )
    return answer.decode_header(GetKVConfigResponseHeader).value or ""


async def put_kv(core: AdminCore, namespace: str, key: str, value: str) -> None:
    """Set a value in every name server's table."""
    header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
    await core.each_name_server(f"setting of {key}", RequestCode.PUT_KV_CONFIG, header)


async def delete_kv(core: AdminCore, namespace: str, key: str) -> None:
    """Delete a value from every name server's table."""
    header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
    await core.each_name_server(f"deletion of {key}", RequestCode.DELETE_KV_CONFIG, header)
