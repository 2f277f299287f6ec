"""How do changes at run time get into the configuration file? Entry by entry; comments and all other lines stay.

Official servers write the whole table instead (``Configuration.persist``) and lose both. Crash story: the file is written aside and
renamed over, the old one is kept as ``.bak``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from txrocketmq.config.properties import merge_properties_file
from txrocketmq.interfaces import IDisk


def write_back(disk: IDisk, path: str, changes: Mapping[str, str]) -> None:
    """Change or add entries of a ``.properties`` file, which is made when it is absent. Blocking: in a pool, one at a time.

    :raises OSError: it cannot be read or written.
    """
    try:
        before = disk.read_file(path)
    except FileNotFoundError:
        before = b""
        disk.makedirs(os.path.dirname(path))
    disk.replace_file(path, merge_properties_file(before, changes), bool(before))
