"""Which names in a store's directories are the store's own? Whatever else lies there is somebody's, and is left alone."""

from __future__ import annotations

_OFFSET_DIGITS = 20
_TIME_DIGITS = 17


def is_file_name(name: str) -> bool:
    """Whether a file is named by its first offset, as those of the log, of queues and of the timer's log are."""
    return len(name) == _OFFSET_DIGITS and _is_number(name)


def is_index_name(name: str) -> bool:
    """Whether a file is named by its time, as those of the index are: year to millisecond."""
    return len(name) == _TIME_DIGITS and _is_number(name)


def is_queue_name(name: str) -> bool:
    """Whether a directory is named by a queue's number."""
    return _is_number(name) and (name == "0" or name[0] != "0")


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()
