"""Was each record on the device before its answer was sent? System calls of one process, as ``strace`` notes them.

Answers to sends carry the message's id, which names its place in the log (``MessageDecoder.createMessageId``). A record counts as
synced when the ranges of ``msync`` calls that ended well hold all of its bytes: a broker syncs no further than it has written, so
such a call began behind the append. ``io_submit`` of a sync of the whole file counts likewise, up to the end that our broker gives it as
its mark, once ``io_getevents`` says that it ended well. The lines of the trace come in the order in which the tracer let the threads go on, so
what stands earlier came earlier.
"""

from __future__ import annotations

import re
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from txrocketmq.codec.command import decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.model.message_id import parse_offset_message_id

_PATIENCE_S = 60.0
_CALLS = "mmap,munmap,msync,io_submit,io_getevents,sendto,sendmsg,write,writev,close"
_LINE = re.compile(r"^(\d+) +(.*)$")
_BEGUN = re.compile(r"^(\w+)\((.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$")
_WHOLE = re.compile(r"^(\w+)\((.*)\) += +(-?\w+)")
_RESULT = re.compile(r"\) += +(-?\w+)")
_BYTES = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_SUBMITTED = re.compile(
    r"aio_data=(0x[0-9a-f]+), aio_lio_opcode=IOCB_CMD_FDSYNC, aio_fildes=(\d+<[^>]*>)"
)
_ENDED = re.compile(r"data=(0x[0-9a-f]+), obj=\w+, res=(-?\w+)")
_LOG_FILE = re.compile(r"/commitlog/(\d{20})(?:\.\w+)?$")


class Answer(NamedTuple):
    """One answer to a send: where its record is, and up to where the log's file was synced when the answer went out."""

    offset: int
    synced: int


class Trace:
    """A trace of one broker process, from its start to its end.

    :ivar answers: all answers to sends, in order.
    :ivar early: those of them that were sent before their records were synced.
    :ivar syncs: how many syncs of log files ended well.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.answers: list[Answer] = []
        self.early: list[Answer] = []
        self.syncs = 0
        #: Start and end of each mapping of a log file, and the file's first offset.
        self._maps: dict[int, tuple[int, int]] = {}
        #: By a file's first offset: all before this one is synced.
        self._synced: dict[int, int] = defaultdict(int)
        self._sockets: dict[str, FrameSplitter] = {}
        #: Syncs of whole files that the kernel has under way: by their mark, the file's first offset.
        self._submitted: dict[int, int] = {}
        #: By thread: a call that has not ended, and what was synced when it began.
        self._begun: dict[str, tuple[str, str, dict[int, int]]] = {}

    @property
    def command(self) -> list[str]:
        """What stands before the traced command. The tracer is its grandchild, so signals and exit codes are the broker's own."""
        strace = shutil.which("strace")
        assert strace is not None, "strace is missing: scripts/test.sh installs it"
        options = ["-D", "-f", "-y", "-xx", "-s", "1000000", "-e", f"trace={_CALLS}"]
        return [strace, *options, "-e", "signal=none", "-o", str(self._path)]

    def read(self, log: Path) -> None:
        """Read the trace once it is whole; ``log`` is the directory of the log that the broker left."""
        deadline = time.monotonic() + _PATIENCE_S
        while not (lines := self._path.read_text().splitlines())[-1].endswith("+++"):
            assert time.monotonic() < deadline, "the trace has no end"
            time.sleep(0.05)
        for line in lines:
            self._take(line)
        for answer in self.answers:
            path = max(path for path in log.iterdir() if int(path.name) <= answer.offset)
            with path.open("rb") as file:
                file.seek(answer.offset - int(path.name))
                size = int.from_bytes(file.read(4), "big")
            assert size > 0, f"no record at {answer.offset}"
            if answer.synced < answer.offset + size:
                self.early.append(answer)

    def _take(self, line: str) -> None:
        found = _LINE.match(line)
        assert found is not None, f"no line of a trace: {line[:200]}"
        thread, text = found.groups()
        if begun := _BEGUN.match(text):
            self._begun[thread] = (*begun.groups(), dict(self._synced))
        elif resumed := _RESUMED.match(text):
            call, arguments, synced = self._begun.pop(thread)
            result = _RESULT.search(resumed[2])
            assert call == resumed[1], line[:200]
            if result is not None:
                self._called(call, arguments + resumed[2], result[1], synced)
        elif whole := _WHOLE.match(text):
            self._called(*whole.groups(), self._synced)

    def _called(self, call: str, arguments: str, result: str, synced: dict[int, int]) -> None:
        words = [word.strip() for word in arguments.split(",")]
        if call == "mmap":
            self._mapped(words, result)
        elif call == "munmap":
            self._maps.pop(int(words[0], 16), None)
        elif call == "msync" and result == "0":
            self._was_synced(int(words[0], 16), int(words[1]))
        elif call == "io_submit" and result == "1":
            for mark, descriptor in _SUBMITTED.findall(arguments):
                if name := _LOG_FILE.search(_name(descriptor)):
                    self._submitted[int(mark, 16)] = int(name[1])
        elif call == "io_getevents":
            for mark, outcome in _ENDED.findall(arguments):
                base = self._submitted.pop(int(mark, 16), None)
                if base is not None and outcome == "0":
                    self.syncs += 1
                    self._synced[base] = max(self._synced[base], base + int(mark, 16))
        elif call == "close":
            self._sockets.pop(words[0], None)
        elif _name(words[0]).startswith(("socket:", "TCP")) and not result.startswith("-"):
            data = b"".join(_unhexed(text) for text in _BYTES.findall(arguments))
            self._was_sent(words[0], data[: int(result)], synced)

    def _mapped(self, words: list[str], result: str) -> None:
        name = _LOG_FILE.search(_name(words[4]))
        if name is not None and "MAP_SHARED" in words[3]:
            start = int(result, 16)
            self._maps[start] = start + int(words[1]), int(name[1])

    def _was_synced(self, address: int, size: int) -> None:
        for start, (end, base) in self._maps.items():
            if start <= address < end:
                self.syncs += 1
                at = base + address - start
                if at <= self._synced.setdefault(base, base):
                    self._synced[base] = max(self._synced[base], at + size)

    def _was_sent(self, socket: str, data: bytes, synced: dict[int, int]) -> None:
        splitter = self._sockets.setdefault(socket, FrameSplitter())
        for frame in splitter.feed(data):
            answer = decode_command(frame)
            fields = answer.ext_fields or {}
            msg_id = fields.get("msgId")
            if answer.is_response and msg_id and "queueOffset" in fields:
                offset = parse_offset_message_id(msg_id)[2]
                base = max((base for base in synced if base <= offset), default=0)
                self.answers.append(Answer(offset, synced.get(base, 0)))


def _name(descriptor: str) -> str:
    """What a descriptor is of: a path, or ``socket:[...]``; empty when it is none."""
    found = re.search("<(.*)>", descriptor)
    return "" if found is None else _unhexed(found[1]).decode()


def _unhexed(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", "")) if text.startswith("\\x") else text.encode()
