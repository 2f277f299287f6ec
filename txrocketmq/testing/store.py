"""How do tests and demos get a message store without a file system? The real store on a disk in memory."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.interfaces import IBlockingPool, IDisk
from txrocketmq.store.message_store import MessageStore
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool

ROOT = "/store"


def small_config(root: str = ROOT, **keys: object) -> MessageStoreConfig:
    """A configuration with small files; further keys by their attribute's name."""
    sizes: dict[str, object] = {
        "store_path_root_dir": root,
        "mapped_file_size_commit_log": 64 * 1024,
        "mapped_file_size_consume_queue": 2000,
        "mapper_file_size_batch_consume_queue": 4600,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
    }
    return MessageStoreConfig(**{**sizes, **keys})  # type: ignore[arg-type]


def open_memory_store(
    disk: IDisk | None = None,
    clock: IReactorTime | None = None,
    pool: IBlockingPool | None = None,
    config: MessageStoreConfig | None = None,
) -> MessageStore:
    """A store that is loaded and started. Blocking work happens at once unless a pool says otherwise.

    :raises StoreError: as `MessageStore.load`.
    """
    if pool is None:
        pool = ImmediatePool()
    store = MessageStore(
        config or small_config(),
        disk or MemoryDisk(),
        clock or Clock(),
        pool=pool,
        flush_pool=pool,
        read_pool=pool,
    )
    failures: list[Failure] = []
    store.load().addErrback(failures.append)
    for failure in failures:
        failure.raiseException()
    store.start()
    return store
