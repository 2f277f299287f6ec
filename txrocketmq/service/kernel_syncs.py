"""How does a file get to the device without a thread of ours? The kernel is asked to, and says on a descriptor when it is done.

A thread that syncs has to win the interpreter lock back twice for each sync, from a reactor that is busy with those who wait for it:
about half of what a synchronous send costs more than an asynchronous one, by estimate. Linux takes ``IOCB_CMD_FDSYNC`` (since 4.18, ``io_submit(2)``): the same
``fdatasync`` in a thread of the kernel. There is no wrapper for it in Python or in the C library, so the calls are made by their
numbers. Where the system does not have them, or does not allow them, `KernelSyncs` stays closed and threads do the work.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReadDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocketmq.interfaces import IKernelSyncs

log = Logger()

#: Numbers of io_setup, io_destroy, io_getevents and io_submit (``asm/unistd.h``).
_CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}

#: ``linux/aio_abi.h``.
_FDSYNC = 3
_TELL_DESCRIPTOR = 1

# A number among variable arguments must be as wide as the kernel reads it.
_NONE, _ONE = ctypes.c_long(0), ctypes.c_long(1)

#: What a system answers that keeps programs from a call, as containers may.
_NOT_ALLOWED = (errno.ENOSYS, errno.EPERM)

#: One sync at a time is what a log needs.
MOST_AT_ONCE = 8
_MOST = ctypes.c_long(MOST_AT_ONCE)


class _Request(ctypes.Structure):
    """``struct iocb`` of a little-endian machine."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("told_descriptor", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """``struct io_event``."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


@implementer(IKernelSyncs, IReadDescriptor)
class KernelSyncs:
    """Syncs that the kernel does, from `open` to `close`; both may be called again.

    :ivar is_open: see `IKernelSyncs`.
    """

    def __init__(self, reactor: Any) -> None:
        self.is_open = False
        self._reactor = reactor
        self._call: Any = None
        self._context = ctypes.c_ulong(0)
        self._told = -1
        self._destroy = self._get_events = self._submit = _NONE
        self._waiting: dict[int, Deferred[None]] = {}
        self._events = (_Event * MOST_AT_ONCE)()
        self._request = _Request()
        self._requests = (ctypes.POINTER(_Request) * 1)(ctypes.pointer(self._request))

    def open(self) -> None:
        """Ready for work, unless this system does not do it."""
        numbers = _CALLS.get(platform.machine())
        if self.is_open or numbers is None or sys.platform != "linux" or sys.maxsize < 1 << 32:
            return
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        setup, self._destroy, self._get_events, self._submit = map(ctypes.c_long, numbers)
        self._context.value = 0
        if self._call(setup, _MOST, ctypes.byref(self._context)):
            self._say_refused(ctypes.get_errno())
            return
        try:
            self._told = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError as error:
            self._call(self._destroy, self._context)
            self._say_refused(error.errno or 0)
            return
        self._reactor.addReader(self)
        self.is_open = True

    def _say_refused(self, code: int) -> None:
        log.info("syncs are done by a thread: the kernel says {reason}", reason=os.strerror(code))

    def sync(self, descriptor: int, end: int) -> Deferred[None] | None:
        """See `IKernelSyncs`."""
        if not self.is_open or len(self._waiting) >= MOST_AT_ONCE or end in self._waiting:
            return None
        request = self._request
        request.data = end
        request.opcode = _FDSYNC
        request.descriptor = descriptor
        request.flags = _TELL_DESCRIPTOR
        request.told_descriptor = self._told
        # The kernel copies the request before this returns.
        if self._call(self._submit, self._context, _ONE, self._requests) != 1:
            code = ctypes.get_errno()
            if code in _NOT_ALLOWED:
                # It will not be the next time either.
                self._say_refused(code)
                self.close()
            return None
        done = self._waiting[end] = Deferred()
        return done

    def close(self) -> None:
        """No more syncs. Those under way are waited for; where it cannot be learned how they went, they fail."""
        if self.is_open:
            self.is_open = False
            self._reactor.removeReader(self)
            ended = self._ended(ctypes.c_long(len(self._waiting))) or []
            self._call(self._destroy, self._context)
            os.close(self._told)
            self._told = -1
            self._settle(ended)
            waiting, self._waiting = self._waiting, {}
            for job in waiting.values():
                job.errback(OSError(errno.ECANCELED, os.strerror(errno.ECANCELED)))

    def _ended(self, at_least: ctypes.c_long) -> list[tuple[int, int]] | None:
        """Marks and results of syncs that are over; None when nothing can be learned any more.

        :param at_least: so many are waited for.
        """
        events = self._events
        while True:
            count = self._call(self._get_events, self._context, at_least, _MOST, events, None)
            if count >= 0:
                return [(event.data, event.result) for event in events[:count]]
            # A signal, also where nothing was waited for: the kernel says so instead of "none".
            if ctypes.get_errno() != errno.EINTR:
                return None
            if not at_least.value:
                return []

    def _settle(self, ended: list[tuple[int, int]]) -> None:
        for end, result in ended:
            waiting = self._waiting.pop(end, None)
            if waiting is None:
                continue
            if result < 0:
                waiting.errback(OSError(-result, os.strerror(-result)))
            else:
                waiting.callback(None)

    # ------------------------------------------------------------------ for the reactor

    def fileno(self) -> int:
        """See `IReadDescriptor`."""
        return self._told

    def logPrefix(self) -> str:
        """See `IReadDescriptor`."""
        return "kernel-syncs"

    def connectionLost(self, reason: Failure) -> None:
        """See `IReadDescriptor`: the reactor gives the descriptor up."""
        self.close()

    def doRead(self) -> None:
        """See `IReadDescriptor`: syncs are over."""
        try:
            os.eventfd_read(self._told)
        except BlockingIOError:
            return
        ended = self._ended(_NONE)
        if ended is None:
            self.close()
        else:
            self._settle(ended)
