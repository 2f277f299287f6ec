"""What each bit means: message and pull sysFlags, topic flags, permissions.

Stands for ``MessageSysFlag``, ``PullSysFlag``, ``TopicSysFlag`` and ``PermName``. Plain integer constants: these are tested
for every message.
"""

from __future__ import annotations

# Message sysFlag.
COMPRESSED_FLAG = 0x1
MULTI_TAGS_FLAG = 0x2
TRANSACTION_NOT_TYPE = 0x0
TRANSACTION_PREPARED_TYPE = 0x4
TRANSACTION_COMMIT_TYPE = 0x8
TRANSACTION_ROLLBACK_TYPE = 0xC
BORN_HOST_V6_FLAG = 0x10
STORE_HOST_V6_FLAG = 0x20
NEED_UNWRAP_FLAG = 0x40
INNER_BATCH_FLAG = 0x80
COMPRESSION_LZ4_TYPE = 0x100
COMPRESSION_ZSTD_TYPE = 0x200
COMPRESSION_ZLIB_TYPE = 0x300
COMPRESSION_TYPE_MASK = 0x700

# Pull sysFlag.
PULL_COMMIT_OFFSET = 0x1
PULL_SUSPEND = 0x2
PULL_SUBSCRIPTION = 0x4
PULL_CLASS_FILTER = 0x8
PULL_LITE_PULL = 0x10

# Topic sysFlag.
TOPIC_UNIT = 0x1
TOPIC_UNIT_SUB = 0x2

# Permissions of topics and brokers.
PERM_INHERIT = 0x1
PERM_WRITE = 0x2
PERM_READ = 0x4
PERM_PRIORITY = 0x8
PERM_READ_WRITE = PERM_READ | PERM_WRITE


def transaction_type(sys_flag: int) -> int:
    """The transaction bits: one of the ``TRANSACTION_*`` values."""
    return sys_flag & TRANSACTION_ROLLBACK_TYPE


def with_transaction_type(sys_flag: int, kind: int) -> int:
    """``sys_flag`` with its transaction bits replaced."""
    return (sys_flag & ~TRANSACTION_ROLLBACK_TYPE) | kind


def is_compressed(sys_flag: int) -> bool:
    """Whether the stored body is compressed."""
    return bool(sys_flag & COMPRESSED_FLAG)


def pull_sys_flag(
    *,
    commit_offset: bool,
    suspend: bool,
    subscription: bool,
    class_filter: bool = False,
    lite_pull: bool = False,
) -> int:
    """The sysFlag of a pull request."""
    return (
        (PULL_COMMIT_OFFSET if commit_offset else 0)
        | (PULL_SUSPEND if suspend else 0)
        | (PULL_SUBSCRIPTION if subscription else 0)
        | (PULL_CLASS_FILTER if class_filter else 0)
        | (PULL_LITE_PULL if lite_pull else 0)
    )


def topic_sys_flag(*, unit: bool, unit_sub: bool) -> int:
    """The sysFlag of a topic."""
    return (TOPIC_UNIT if unit else 0) | (TOPIC_UNIT_SUB if unit_sub else 0)


def is_readable(perm: int) -> bool:
    """Whether the permission lets consumers read."""
    return bool(perm & PERM_READ)


def is_writeable(perm: int) -> bool:
    """Whether the permission lets producers write."""
    return bool(perm & PERM_WRITE)


def is_inherited(perm: int) -> bool:
    """Whether automatically created topics may copy this one (``TBW102``)."""
    return bool(perm & PERM_INHERIT)


def is_valid_perm(perm: int) -> bool:
    """Whether a permission value may be configured: 0 up to, without, `PERM_PRIORITY`."""
    return 0 <= perm < PERM_PRIORITY


def perm_text(perm: int) -> str:
    """A permission as admin tools print it: ``RW-``, ``R--``, ``RWX``."""
    return "".join(
        letter if perm & bit else "-"
        for bit, letter in ((PERM_READ, "R"), (PERM_WRITE, "W"), (PERM_INHERIT, "X"))
    )
