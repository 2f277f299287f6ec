"""Schedules in which the kernel syncs the log, as it does for a broker whose senders wait: `IKernelSyncs` on the simulated disk.

A sync covers the whole file at some moment between the request and the report; the ring may be full at any time, and then a pool does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from twisted.internet.defer import Deferred
from zope.interface import implementer

from tests.sim.world import FIRST_ACTIONS, World
from txrocketmq.interfaces import IKernelSyncs
from txrocketmq.testing.pools import SimulatedPool
from txrocketmq.testing.simdisk import Faults, SimulatedDisk, SimulatedMapping

#: What happens in a life whose device fails often, at a sync that somebody waits for.
FAILING_ACTIONS = {**FIRST_ACTIONS, "put": 60, "fail_sync": 4}


class DescribedDisk(SimulatedDisk):
    """A disk whose mappings have descriptors, and by these can be found."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.mappings: list[SimulatedMapping] = []

    def map(self, path: str, size: int, create: bool) -> SimulatedMapping:
        """See `IDisk`."""
        mapping = super().map(path, size, create)
        mapping.descriptor = len(self.mappings)
        self.mappings.append(mapping)
        return mapping


@implementer(IKernelSyncs)
class SimulatedKernel:
    """Syncs that take their time.

    :ivar count: syncs that were taken.
    """

    def __init__(self, rng: Random, disk: DescribedDisk, pool: SimulatedPool) -> None:
        self.is_open = True
        self.count = 0
        self._rng = rng
        self._disk = disk
        self._pool = pool

    def sync(self, descriptor: int, end: int) -> Deferred[None] | None:
        """See `IKernelSyncs`."""
        if self._rng.random() < 0.1:
            return None
        self.count += 1
        mapping = self._disk.mappings[descriptor]
        return self._pool.submit(mapping.sync, 0, mapping.size)


class KernelWorld(World):
    """One schedule whose log the kernel syncs; see `World`.

    :ivar kernel_syncs: how many the kernel took.
    """

    disk: DescribedDisk

    def __init__(
        self,
        seed: int,
        faults: Faults | None = None,
        actions: Mapping[str, int] = FIRST_ACTIONS,
        **keys: object,
    ) -> None:
        super().__init__(seed, faults, actions, **keys)
        self._kernel_rng = Random(f"kernel {seed}")
        self.disk = DescribedDisk(Random(self._kernel_rng.random()))
        self._kernels: list[SimulatedKernel] = []

    @property
    def kernel_syncs(self) -> int:
        return sum(kernel.count for kernel in self._kernels)

    def _make_kernel(self) -> SimulatedKernel:
        pool = SimulatedPool(self._kernel_rng, 8)
        self.pools.append(pool)
        kernel = SimulatedKernel(self._kernel_rng, self.disk, pool)
        self._kernels.append(kernel)
        return kernel
