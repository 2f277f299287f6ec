"""What may stand on a role's command line? The options that the three ``twistd`` commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from twisted.python import usage

import twisted
import txrocketmq
from txrocketmq.config.load import Role, Settings, load_settings, split_override
from txrocketmq.errors import RocketMQError
from txrocketmq.service.startup import refuse, refusing


class RoleOptions(usage.Options):
    """Options of one role; after parsing, `settings` holds the whole configuration.

    :cvar command: the plugin's name, for lines on stderr.
    :cvar role: what is configured.
    """

    command: ClassVar[str] = ""
    role: ClassVar[Role]

    optParameters: ClassVar[list[list[Any]]] = [
        ["config", "c", None, "Official configuration file (.properties or .conf)."],
        ["namesrv", "n", None, "Name servers: host:port;host:port (key namesrvAddr)."],
    ]
    optFlags: ClassVar[list[list[Any]]] = [
        ["print-config", "p", "Print every configuration key with its value, and end."],
        ["print-important", "m", "Print the important configuration keys, and end."],
    ]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.overrides: list[tuple[str, str]] = []
        self.settings: Settings

    def opt_set(self, setting: str) -> None:
        """Set one configuration key: key=value. May be repeated; stronger than the file and the environment."""
        with refusing(self.command):
            self.overrides.append(split_override(setting))

    opt_h = usage.Options.opt_help

    def opt_version(self) -> None:
        """Say the versions of txrocketmq and Twisted, and end."""
        sys.stdout.write(f"txrocketmq {txrocketmq.__version__}, Twisted {twisted.__version__}\n")
        sys.stdout.flush()
        raise SystemExit(0)

    def parseArgs(self, *words: str) -> None:
        """Refuse words that belong to no option."""
        if words:
            raise usage.UsageError(f"{words[0]!r} is no option, nor the value of one")

    def parseOptions(self, options: Any = None) -> None:
        """Parse; a mistake ends the process with one line instead of the whole help text."""
        try:
            super().parseOptions(options)  # type: ignore[no-untyped-call]
        except usage.UsageError as error:
            refuse(self.command, f"{error} (--help lists the options)")

    def postOptions(self) -> None:
        """Load the configuration; with ``-p`` or ``-m`` print it and end."""
        overrides = list(self.overrides)
        if self["namesrv"] is not None:
            overrides.append(("namesrvAddr", self["namesrv"]))
        with refusing(self.command):
            self.settings = load_settings(
                self.role,
                config_file=self["config"],
                environment=os.environ,
                overrides=overrides,
            )
        if self["print-config"] or self["print-important"]:
            self._print(important_only=not self["print-config"])
        self._keep_no_pid_file_in_the_foreground()

    def _keep_no_pid_file_in_the_foreground(self) -> None:
        """With ``twistd -n`` write a pid file only where one is asked for.

        Otherwise the second server of a directory would be refused because of ``twistd.pid``, and nobody needs that file
        to find a process in a terminal.
        """
        twistd = self.parent
        # An option that was given is another object than its default, even when it says the same.
        if (
            twistd is not None
            and twistd.get("nodaemon")
            and twistd.get("pidfile") is twistd.defaults.get("pidfile")
        ):
            twistd["pidfile"] = ""

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Turn an expected error into one line and exit code 1; slips in keys are told before, one may be the reason."""
        try:
            yield
        except RocketMQError as error:
            for line in self.settings.slips:
                sys.stderr.write(f"{self.command}: {line}\n")
            refuse(self.command, error)

    def _print(self, *, important_only: bool) -> None:
        for line in self.settings.warnings:
            sys.stderr.write(f"{self.command}: {line}\n")
        try:
            for name, value in self.settings.entries(important_only).items():
                sys.stdout.write(f"{name}={value}\n")
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader has enough (``| head``); what is left goes nowhere instead of failing again at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0)
