"""Transactions as one feature: what it keeps and what it does in time.

Stands for the life of ``TransactionalMessageService`` and its services.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from txrocketmq.broker.transaction.check import Parts, TransactionChecks
from txrocketmq.broker.transaction.open import OpenTransactions
from txrocketmq.broker.transaction.outcomes import Outcomes
from txrocketmq.broker.transaction.processor import TransactionProcessor
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.interfaces import IConfigFiles, IMessageStore
from txrocketmq.model.message import Host

if TYPE_CHECKING:
    from txrocketmq.broker.clients import Producers
    from txrocketmq.broker.consumer_offsets import ConsumerOffsets
    from txrocketmq.broker.escape.bridge import EscapeBridge
    from txrocketmq.broker.intake import Intake
    from txrocketmq.broker.stats import BrokerStats
    from txrocketmq.broker.topics import Topics


class TransactionService:
    """Open transactions, their outcomes, and the questions about them."""

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        store: IMessageStore,
        bridge: EscapeBridge,
        topics: Topics,
        producers: Producers,
        offsets: ConsumerOffsets,
        intake: Intake,
        store_host: Host,
        clock: IReactorTime,
        files: IConfigFiles,
        now_ms: Callable[[], int],
        stats: BrokerStats,
    ) -> None:
        self.open = OpenTransactions(files, now_ms)
        self.outcomes = Outcomes(config, store, store_host, clock, stats)
        self.checks = TransactionChecks(
            Parts(
                config,
                store_config,
                store,
                bridge,
                topics,
                producers,
                offsets,
                self.outcomes,
                self.open,
                stats,
            ),
            clock,
        )
        self.processor = TransactionProcessor(
            config, store_config, store, intake, bridge, self.outcomes, self.open, stats, now_ms
        )

    def load(self) -> None:
        """Read how many transactions are open.

        :raises StoreError: the file is not what its name says.
        """
        self.open.load()

    def start(self) -> None:
        """Ask for outcomes from now on."""
        self.checks.start()

    def stop(self) -> None:
        """Ask nobody any more, and note all outcomes in the log."""
        self.checks.stop()
        self.outcomes.stop()

    def save(self) -> Deferred[None]:
        """Save how many transactions are open; fires when it is on disk."""
        return self.open.save()

    def figures(self) -> dict[str, str]:
        """What a running broker says of its transactions, besides what official ones do."""
        counts = self.open
        figures = {
            "transactionsOpen": counts.total(),
            "transactionsCommitted": sum(counts.committed.values()),
            "transactionsRolledBack": sum(counts.rolled_back.values()),
            "transactionsGivenUp": counts.given_up,
            "transactionChecks": counts.checks,
        }
        return {name: str(number) for name, number in figures.items() if number}
