"""Who may read now: a bounded number of leases that end by themselves, on a monotonic clock."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from shardpool.errors import LeaseError, PeerBusyError

_SHORTEST_RETRY = 0.25
_LONGEST_RETRY = 5.0
_REFUSAL_WINDOW = 5.0


class DrainingError(LeaseError):
    """The source gives no further lease: it is about to leave."""


@dataclass(slots=True)
class Lease:
    """Leave to read until `expires` (on the table's clock), given to the process `holder`. `id` is 32 hex digits."""

    id: str
    holder: str
    transport: str
    expires: float
    generation: int = 0
    """Raised by every read that is begun under the lease: only the newest goes on."""


class Leases:
    """The leases of one rank. Expired ones are forgotten whenever anybody looks, so a dead holder costs nothing but its time.

    Args:
        seconds: how long a lease lasts unless it is renewed.
        capacity: how many there may be at once.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, seconds: float, capacity: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.capacity = capacity
        self._clock = clock
        self._changed = threading.Condition()
        self._leases: dict[str, Lease] = {}
        self._refused: dict[str, float] = {}
        self._closed = False

    def __len__(self) -> int:
        with self._changed:
            self._forget()
            return len(self._leases)

    def acquire(self, holder: str, transport: str = "") -> Lease:
        """A new lease. Raises PeerBusyError (with when to come back) when there is no place, DrainingError after `refuse_new`."""
        with self._changed:
            self._forget()
            if self._closed:
                raise DrainingError("the source is draining", hint="read from another peer")
            if len(self._leases) >= self.capacity:
                raise PeerBusyError(
                    f"{len(self._leases)} readers of {self.capacity} are served", retry_after=self._retry_after(holder)
                )
            self._refused.pop(holder, None)
            lease = Lease(secrets.token_hex(16), holder, transport, self._clock() + self.seconds)
            self._leases[lease.id] = lease
            self._changed.notify_all()
            return lease

    def renew(self, lease_id: str) -> Lease:
        """Let a live lease last its full time from now. Raises LeaseError."""
        with self._changed:
            lease = self._live(lease_id)
            lease.expires = self._clock() + self.seconds
            return lease

    def begin_read(self, lease_id: str) -> Lease:
        """A live lease under which a read begins; an older read under it must end. Raises LeaseError."""
        with self._changed:
            lease = self._live(lease_id)
            lease.generation += 1
            return lease

    def release(self, lease_id: str) -> None:
        """End a lease. Raises LeaseError when it is not live, so also the second time."""
        with self._changed:
            del self._leases[self._live(lease_id).id]
            self._changed.notify_all()

    def covers(self, lease: Lease, generation: int) -> bool:
        """Whether a read begun as `generation` of the lease may go on. Cheap: asked before every chunk."""
        return lease.generation == generation and lease.expires > self._clock() and lease.id in self._leases

    def refuse_new(self) -> None:
        """Give no further lease; live ones may be renewed and released."""
        with self._changed:
            self._closed = True

    def revoke_all(self) -> None:
        """End every lease."""
        with self._changed:
            self._leases.clear()
            self._changed.notify_all()

    def wait_until_none(self, timeout: float) -> bool:
        """Wait until every lease is released or expired, at most `timeout` seconds; whether it came to that."""
        deadline = self._clock() + timeout
        with self._changed:
            while True:
                self._forget()
                now = self._clock()
                if not self._leases or now >= deadline:
                    return not self._leases
                soonest = min(lease.expires for lease in self._leases.values())
                self._changed.wait(max(min(deadline, soonest) - now, 0.001))

    def _live(self, lease_id: str) -> Lease:
        self._forget()
        try:
            return self._leases[lease_id]
        except KeyError:
            raise LeaseError("the lease is unknown, expired or released", hint="acquire another one") from None

    def _forget(self) -> None:
        now = self._clock()
        expired = [lease.id for lease in self._leases.values() if lease.expires <= now]
        for lease_id in expired:
            del self._leases[lease_id]
        if expired:
            self._changed.notify_all()

    def _retry_after(self, holder: str) -> float:
        """Longer, the more callers were turned away lately, so that a crowd does not come back as one."""
        now = self._clock()
        self._refused = {name: at for name, at in self._refused.items() if now - at < _REFUSAL_WINDOW}
        if len(self._refused) < 8 * self.capacity:
            self._refused[holder] = now
        return min(_SHORTEST_RETRY * (1 + len(self._refused) / self.capacity), _LONGEST_RETRY)
