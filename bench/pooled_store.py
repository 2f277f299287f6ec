"""How does a store come by the pools that a broker gives it?"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, inlineCallbacks

from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.service.pools import BlockingPool
from txrocketmq.store.disk import RealDisk
from txrocketmq.store.message_store import MessageStore


class Pools(NamedTuple):
    """One thread each."""

    files: BlockingPool
    flush: BlockingPool
    read: BlockingPool
    queues: BlockingPool


def pooled_store(reactor: Any, config: MessageStoreConfig) -> tuple[MessageStore, Pools]:
    """A store on the real disk, not loaded yet, and its pools."""
    pools = Pools(*(BlockingPool(reactor, name, 1) for name in Pools._fields))
    store = MessageStore(
        config,
        RealDisk(),
        reactor,
        pool=pools.files,
        flush_pool=pools.flush,
        read_pool=pools.read,
        queue_pool=pools.queues,
    )
    return store, pools


@inlineCallbacks
def stop_pooled(store: MessageStore, pools: Pools) -> Generator[Deferred[Any], Any, None]:
    """Stop both in order."""
    yield store.stop()
    for pool in pools:
        yield pool.stop()
