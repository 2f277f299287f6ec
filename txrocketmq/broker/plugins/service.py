"""Which plug-ins does a broker have, and when are they called?

Stands for ``executeSendMessageHookBefore`` and its like, and for the list of attached plug-ins. Without plug-ins nothing of this stands
between a request and its handler.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred, TimeoutError, maybeDeferred
from twisted.logger import Logger
from twisted.plugin import getPlugins

from txrocketmq.broker.feature import Feature
from txrocketmq.broker.interfaces import IBrokerPlugin
from txrocketmq.broker.plugins.views import PulledView, PullView, SendView
from txrocketmq.errors import ConfigError, ResponseError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.remoting.dispatch import Reply, Request, refusal_of

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore

PATIENCE_S = 3.0
"""How long a send waits for a plug-in."""
TOO_LATE = "a plug-in of the broker did not answer in time"


def chosen_plugins(names: str, there: Iterable[Any] | None = None) -> list[Any]:
    """The plug-ins that `brokerPlugins` names, in its order.

    :param there: those to choose from; None: all twisted plug-ins.
    :raises ConfigError: there is none of a name.
    """
    wanted = [name for name in map(str.strip, names.split(";")) if name]
    if not wanted:
        return []
    known = {p.name: p for p in (getPlugins(IBrokerPlugin) if there is None else there)}
    missing = [name for name in wanted if name not in known]
    if missing:
        there_are = f"there are {', '.join(sorted(known))}" if known else "none was found"
        raise ConfigError(
            f"brokerPlugins: no plug-in {missing[0]!r}; {there_are}"
            " (they are modules in directories twisted/plugins of PYTHONPATH)"
        )
    return [known[name] for name in wanted]


class Plugins(Feature):
    """Calls plug-ins around sends and pulls.

    :ivar faults: how often one failed.
    """

    _log = Logger()

    def __init__(self, core: BrokerCore, plugins: list[Any]) -> None:
        self._core = core
        self._plugins = plugins
        self._leads: bool | None = None
        self.faults = 0
        self._started: list[Any] = []
        if plugins:
            core.pull.on_found = self._pulled

    def handlers(self) -> Mapping[str, object]:
        """See `IBrokerFeature`. They stand before those that serve sends and pulls otherwise."""
        if not self._plugins:
            return {}
        known: dict[str, Any] = self._core.handlers()
        return {
            "send": _HookedSends(self, known["send"]),
            "pull": _HookedPulls(self, known["pull"]),
        }

    def start(self) -> None:
        """See `IBrokerFeature`."""
        for plugin in self._plugins:
            plugin.start(self._core.config.broker_name)
            self._started.append(plugin)
        self.role_changed()

    def stop(self) -> None:
        """See `IBrokerFeature`."""
        while self._started:
            plugin = self._started.pop()
            self._tell(plugin, plugin.stop)

    def role_changed(self) -> None:
        """See `IBrokerFeature`."""
        leads = not self._core.replication.is_slave
        if leads != self._leads:
            self._leads = leads
            for plugin in self._started:
                self._tell(plugin, plugin.leads_changed, leads)

    def figures(self) -> Mapping[str, str]:
        """See `IBrokerFeature`."""
        found: dict[str, str] = {}
        for plugin in self._plugins:
            found.update(self._tell(plugin, _figures_of, plugin) or {})
        if self.faults:
            found["brokerPluginFaults"] = str(self.faults)
        return found

    def _call(self, plugin: Any, hook: Callable[..., Any], *arguments: Any) -> Any:
        """What a hook returns; None when it failed, which is no matter of clients."""
        try:
            return hook(*arguments)
        except ResponseError:
            raise
        except Exception:
            self._failed(plugin)
            return None

    def _tell(self, plugin: Any, hook: Callable[..., Any], *arguments: Any) -> Any:
        """As `_call`, where there is nothing to refuse, or it is too late."""
        try:
            return self._call(plugin, hook, *arguments)
        except ResponseError:
            self._failed(plugin)
            return None

    def _failed(self, plugin: Any) -> None:
        self.faults += 1
        if self.faults & (self.faults - 1) == 0:
            # The first, the second, the fourth...: a plug-in that always fails must not fill the log.
            self._log.failure("plug-in {name} failed", name=plugin.name)

    # ------------------------------------------------------------------ sends

    def send(self, request: Request[Any], serve: Callable[[Request[Any]], Any]) -> Any:
        """A send with what plug-ins say to it."""
        view = _send_view(request)
        waiting: list[Deferred[None]] = []
        try:
            for plugin in self._plugins:
                hook = self._call(plugin, plugin.before_send, view)
                if isinstance(hook, Coroutine):
                    # It would never run, and what it refuses be taken.
                    hook = Deferred.fromCoroutine(hook)
                if isinstance(hook, Deferred):
                    waiting.append(Deferred.fromCoroutine(self._patiently(plugin, hook)))
        except ResponseError as refused:
            return self._sent(refusal_of(refused), view)
        if waiting:
            return Deferred.fromCoroutine(self._send_later(waiting, request, serve, view))
        answer = serve(request)
        if isinstance(answer, Deferred):
            return answer.addCallback(self._sent, view)
        return self._sent(answer, view)

    async def _patiently(self, plugin: Any, hook: Deferred[Any]) -> None:
        try:
            await hook.addTimeout(PATIENCE_S, self._core.clock)
        except (TimeoutError, CancelledError):
            raise ResponseError(ResponseCode.SYSTEM_BUSY, TOO_LATE) from None
        except ResponseError:
            raise
        except Exception:
            self._failed(plugin)

    async def _send_later(
        self,
        waiting: list[Deferred[None]],
        request: Request[Any],
        serve: Callable[[Request[Any]], Any],
        view: SendView,
    ) -> Reply:
        refusal: ResponseError | None = None
        for hook in waiting:
            try:
                await hook
            except ResponseError as refused:
                refusal = refusal or refused
        if refusal is not None:
            return self._sent(refusal_of(refusal), view)
        return self._sent(await maybeDeferred(serve, request), view)

    def _sent(self, answer: Reply, view: SendView) -> Reply:
        for plugin in self._plugins:
            self._tell(plugin, plugin.after_send, view, answer.code, answer.remark)
        return answer

    # ------------------------------------------------------------------ pulls

    def asked(self, request: Request[Any]) -> None:
        """A pull comes.

        :raises ResponseError: a plug-in refuses it.
        """
        header = request.header
        view = PullView(
            header.topic,
            header.consumer_group,
            header.queue_id,
            header.queue_offset,
            request.connection.remote_text,
        )
        for plugin in self._plugins:
            self._call(plugin, plugin.before_pull, view)

    def _pulled(self, header: Any, found: Any) -> None:
        view = PulledView(
            header.topic,
            header.consumer_group,
            header.queue_id,
            found.message_count,
            found.size_bytes,
            found.next_begin_offset,
        )
        for plugin in self._plugins:
            self._tell(plugin, plugin.pulled, view)


class _HookedSends:
    """Stands before what serves sends."""

    def __init__(self, plugins: Plugins, server: Any) -> None:
        self._plugins = plugins
        self._server = server

    def send_message(self, request: Request[Any]) -> Any:
        """See `SendProcessor.send_message`."""
        return self._plugins.send(request, self._server.send_message)

    def send_batch(self, request: Request[Any]) -> Any:
        """See `SendProcessor.send_batch`."""
        return self._plugins.send(request, self._server.send_batch)


class _HookedPulls:
    """Stands before what serves pulls."""

    def __init__(self, plugins: Plugins, server: Any) -> None:
        self._plugins = plugins
        self._server = server

    def pull_message(self, request: Request[Any]) -> Any:
        """See `PullProcessor.pull_message`."""
        self._plugins.asked(request)
        return self._server.pull_message(request)


def _figures_of(plugin: Any) -> dict[str, str]:
    """A plug-in's figures.

    :raises TypeError: they are something else.
    """
    found = dict(plugin.figures() or {})
    for name, value in found.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise TypeError(f"figures are texts by their names, not {name!r}: {value!r}")
    return found


def _send_view(request: Request[Any]) -> SendView:
    header = request.header
    return SendView(
        header.topic,
        header.producer_group,
        header.queue_id,
        request.body,
        header.properties or "",
        request.connection.remote_text,
        dict(request.ext_fields),
    )
