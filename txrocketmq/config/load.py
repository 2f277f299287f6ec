"""Which value does each key have in the end? Defaults, then the file, then the environment, then the command line.

Keys that nobody declares are kept and reported once each; a value that cannot be right is refused with one line that
names key, value and what is allowed. Official classes: ``BrokerStartup``, ``NamesrvStartup``, ``MixAll``.
"""

from __future__ import annotations

import difflib
import enum
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import attrs

from txrocketmq.config.keys import Computed, KeySpec, format_value, key_table, keys_of
from txrocketmq.config.properties import parse_properties_file
from txrocketmq.config.schema import (
    BrokerConfig,
    MessageStoreConfig,
    NamesrvConfig,
    NettyClientConfig,
    NettyServerConfig,
)
from txrocketmq.errors import ConfigError

NAMESRV_PORT = 9876
BROKER_PORT = 10911
ALL_IN_ONE_STORE = "store"
KEPT_CHANGES = "txrocketmq.properties"
COMMAND_LINE = "command line"
_ENVIRONMENT = {"NAMESRV_ADDR": "namesrvAddr", "ROCKETMQ_HOME": "rocketmqHome"}
# The fast port is two below the main one.
_LOWEST_BROKER_PORT = 3
# Of 1: how alike an unknown key must be to one that is known to be taken for a slip.
_ALIKE = 0.85

S = TypeVar("S")


class Role(enum.Enum):
    """What a process runs."""

    NAMESRV = "name server"
    BROKER = "broker"
    ALL_IN_ONE = "name server and broker"


_SECTIONS: dict[Role, tuple[type, ...]] = {
    Role.NAMESRV: (NamesrvConfig, NettyServerConfig, NettyClientConfig),
    Role.BROKER: (BrokerConfig, NettyServerConfig, NettyClientConfig, MessageStoreConfig),
    Role.ALL_IN_ONE: (
        BrokerConfig,
        NettyServerConfig,
        NettyClientConfig,
        MessageStoreConfig,
        NamesrvConfig,
    ),
}


ACCESS_KEYS = ("aclEnable", "authenticationEnabled", "authorizationEnabled")
"""Each asks officially for control of access; those of 5.3 are read from the broker's file by a class of their own."""

LOOSE_KEYS = frozenset({"rmqAddressServerDomain", "rmqAddressServerSubGroup"})
"""What official start-up code reads and no class declares; kept in `Settings.unknown`."""


@attrs.define
class Settings:
    """The configuration of one process.

    :ivar role: what the process runs.
    :ivar sections: one object of each configuration class that the role uses.
    :ivar explicit: keys that somebody set, with where.
    :ivar unknown: entries that no class declares, kept as they are.
    :ivar warnings: lines for the operator, each worth one log entry.
    :ivar slips: those of them that name a key which was probably meant to be another one.
    """

    role: Role
    sections: tuple[object, ...]
    explicit: dict[str, str] = attrs.field(factory=dict)
    unknown: dict[str, str] = attrs.field(factory=dict)
    warnings: list[str] = attrs.field(factory=list)
    slips: list[str] = attrs.field(factory=list)

    def section(self, cls: type[S]) -> S:
        """The object of one configuration class.

        :raises KeyError: the role has no such section.
        """
        for section in self.sections:
            if isinstance(section, cls):
                return section
        raise KeyError(cls.__name__)

    def is_explicit(self, name: str) -> bool:
        """Whether a key was set by somebody and does not merely have its default."""
        return name in self.explicit

    def assign(self, name: str, raw: str, source: str) -> None:
        """Set a key from text in every section that has it.

        :raises ConfigError: the value is not allowed.
        """
        known = False
        for section in self.sections:
            spec = key_table(type(section)).get(name)
            if spec is not None:
                known = True
                self.explicit[spec.name] = source
                with self.blaming(spec.name):
                    setattr(section, spec.attribute, spec.parse(raw))
        if not known:
            if name not in self.unknown and name not in LOOSE_KEYS and name not in ACCESS_KEYS:
                self._report_unknown(name, source)
            self.unknown[name] = raw

    @contextmanager
    def blaming(self, name: str) -> Iterator[None]:
        """Say in an error where the key got its value, if it was not typed just now: a file may be long forgotten."""
        try:
            yield
        except ConfigError as error:
            source = self.explicit.get(name, COMMAND_LINE)
            if source == COMMAND_LINE:
                raise
            raise ConfigError(f"{error} (from {source})") from None

    def _report_unknown(self, name: str, source: str) -> None:
        line = f"unknown configuration key {name} ({source}): kept, no effect"
        names = {
            known.lower(): known for section in self.sections for known in key_table(type(section))
        }
        alike = difflib.get_close_matches(name.lower(), names, n=1, cutoff=_ALIKE)
        if alike:
            line = f"{line}; is {names[alike[0]]} meant?"
            self.slips.append(line)
        self.warnings.append(line)

    def entries(self, important_only: bool = False) -> dict[str, str]:
        """All keys with their values as files spell them, section by section; unknown ones last."""
        found: dict[str, str] = {}
        for section in self.sections:
            for spec in keys_of(type(section)):
                if spec.important or not important_only:
                    found.setdefault(spec.name, format_value(getattr(section, spec.attribute)))
        if not important_only:
            found.update(self.unknown)
        return found


def load_settings(
    role: Role,
    *,
    config_file: str | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Sequence[tuple[str, str]] = (),
) -> Settings:
    """Read a process's configuration.

    :param config_file: an official ``.properties`` or ``.conf`` file.
    :param environment: where ``NAMESRV_ADDR`` and ``ROCKETMQ_HOME`` are looked up.
    :param overrides: keys and values from the command line; the last one wins.
    :raises ConfigError: the file cannot be read or a value is not allowed; one line.
    """
    settings = Settings(role, tuple(cls() for cls in _SECTIONS[role]))
    _apply_role_defaults(settings, config_file)
    if config_file is not None:
        for name, raw in _read_file(config_file).items():
            settings.assign(name, raw, config_file)
    elif role is not Role.NAMESRV:
        _take_kept_changes(settings, dict(overrides))
    for variable, name in _ENVIRONMENT.items():
        wanted = (environment or {}).get(variable)
        if wanted and _has(settings, name):
            settings.assign(name, wanted, f"environment {variable}")
    for name, raw in overrides:
        settings.assign(name, raw, COMMAND_LINE)
    _derive(settings)
    _warn_of_open_doors(settings)
    _warn_of_hours(settings)
    _warn_of_idle_keys(settings)
    return settings


def split_override(argument: str) -> tuple[str, str]:
    """``key=value`` as given on a command line.

    :raises ConfigError: there is no ``=`` or no key.
    """
    name, separator, raw = argument.partition("=")
    if not separator or not name.strip():
        raise ConfigError(f"bad setting {argument!r}: key=value is needed")
    return name.strip(), raw


def split_addresses(addresses: str | None) -> list[str]:
    """Server addresses of a list separated by ``;``: blanks and doubles do no harm, order is kept."""
    found = dict.fromkeys(part.strip() for part in (addresses or "").split(";"))
    return [address for address in found if address]


def check_address(name: str, address: str) -> tuple[str, int]:
    """Host and port of ``host:port``; IPv6 hosts may stand in brackets.

    :raises ConfigError: it is not of that form; ``name`` is the key or option to blame.
    """
    host, separator, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    # "a:1,b:2" and "http://a:1" end in a port, too; their "host" would be looked for in vain.
    is_host = host and not set(host) & set(",/@ \t")
    if not separator or not is_host or not port.isdecimal() or not 0 < int(port) <= 65535:
        raise ConfigError(
            f"bad configuration value {name}={address}: host:port is needed, several with ; between"
        )
    return host, int(port)


def _has(settings: Settings, name: str) -> bool:
    return any(name in key_table(type(section)) for section in settings.sections)


def _read_file(path: str) -> dict[str, str]:
    try:
        with open(path, "rb") as stream:
            return parse_properties_file(stream.read())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot read configuration file {path}: {reason}") from error


def kept_changes_path(store_root: str) -> str:
    """Where a broker that was started without a configuration file keeps what is changed at run time."""
    return os.path.join(store_root, "config", KEPT_CHANGES)


def _take_kept_changes(settings: Settings, overrides: Mapping[str, str]) -> None:
    root = settings.section(MessageStoreConfig).store_path_root_dir
    path = kept_changes_path(overrides.get("storePathRootDir", root))
    if os.path.exists(path):
        for name, raw in _read_file(path).items():
            settings.assign(name, raw, path)


def _apply_role_defaults(settings: Settings, config_file: str | None) -> None:
    if settings.role is Role.NAMESRV:
        settings.section(NettyServerConfig).listen_port = NAMESRV_PORT
    else:
        settings.section(NettyServerConfig).listen_port = BROKER_PORT
        settings.section(BrokerConfig).listen_port = BROKER_PORT
        if config_file is not None:
            settings.section(BrokerConfig).broker_config_path = config_file
    if settings.role is Role.ALL_IN_ONE:
        settings.section(MessageStoreConfig).store_path_root_dir = ALL_IN_ONE_STORE
    elif settings.role is Role.NAMESRV and config_file is not None:
        settings.section(NamesrvConfig).config_store_path = config_file


def _derive(settings: Settings) -> None:
    if settings.role is Role.NAMESRV:
        return
    broker = settings.section(BrokerConfig)
    store = settings.section(MessageStoreConfig)
    with settings.blaming("listenPort"):
        if 0 < broker.listen_port < _LOWEST_BROKER_PORT:
            raise ConfigError(
                f"bad configuration value listenPort={broker.listen_port}: 0 or a number from "
                f"{_LOWEST_BROKER_PORT} is needed, the fast port is two below"
            )
    if not settings.is_explicit("haListenPort") and broker.listen_port:
        store.ha_listen_port = broker.listen_port + 1
    with settings.blaming("namesrvAddr"):
        for address in split_addresses(broker.namesrv_addr):
            check_address("namesrvAddr", address)
    if broker.enable_controller_mode:
        # Role and number are the controller's to give.
        pass
    elif store.broker_role != "SLAVE":
        broker.broker_id = 0
    elif broker.broker_id <= 0:
        with settings.blaming("brokerRole"):
            raise ConfigError(
                f"bad configuration value brokerId={broker.broker_id}: "
                "a SLAVE needs a number above 0"
            )
    if settings.role is Role.ALL_IN_ONE:
        _keep_namesrv_files_in_store(settings, store.store_path_root_dir)


def _keep_namesrv_files_in_store(settings: Settings, root: str) -> None:
    namesrv = settings.section(NamesrvConfig)
    if not settings.is_explicit("kvConfigPath"):
        namesrv.kv_config_path = os.path.join(root, "namesrv", "kvConfig.json")
    if not settings.is_explicit("configStorePath"):
        namesrv.config_store_path = os.path.join(root, "namesrv", "namesrv.properties")


def _warn_of_open_doors(settings: Settings) -> None:
    """Who asked for control of access must learn that there is none, whatever else the file says."""
    entries = settings.entries()
    wanted = [name for name in ACCESS_KEYS if entries.get(name, "").strip().lower() == "true"]
    if wanted:
        settings.warnings.append(
            f"there is no access control yet: {', '.join(wanted)} has no effect, "
            "whoever reaches the ports may send, read and administrate"
        )


def _warn_of_hours(settings: Settings) -> None:
    if settings.role is Role.NAMESRV:
        return
    hours = settings.section(MessageStoreConfig).delete_when
    parts = [part.strip() for part in hours.split(";") if part.strip()]
    odd = [part for part in parts if not (part.isdecimal() and int(part) < 24)]
    if odd or not parts:
        settings.warnings.append(
            f"deleteWhen={hours}: {', '.join(odd) or 'nothing'} is no hour from 00 to 23 and never comes"
        )


def _warn_of_idle_keys(settings: Settings) -> None:
    idle = [
        spec.name
        for section in settings.sections
        for spec in _changed_keys(section, settings.explicit)
        if not spec.acts and spec.name not in ACCESS_KEYS
    ]
    if idle:
        names = ", ".join(dict.fromkeys(idle))
        settings.warnings.append(f"configuration keys that have no effect here: {names}")


def _changed_keys(section: object, explicit: Iterable[str]) -> Iterable[KeySpec]:
    chosen = set(explicit)
    for spec in keys_of(type(section)):
        default = spec.default.compute() if isinstance(spec.default, Computed) else spec.default
        if spec.name in chosen and getattr(section, spec.attribute) != default:
            yield spec
