"""Leaving in order: not ready first, no new reads, the leased ones finish within the grace."""

from __future__ import annotations

import time
from collections.abc import Sequence

from shardpool.log import logger
from shardpool.source.leases import Leases
from shardpool.swarm.replica_state import ReplicaState
from shardpool.swarm.state import Phase

_LOG = logger(__name__)


def drain(state: ReplicaState, tables: Sequence[Leases], grace: float) -> bool:
    """Announce DRAINING, refuse new leases, and wait for the live ones at most `grace` seconds; whether all of them ended.

    What is left after the grace is revoked, so that nothing more is sent.
    """
    deadline = time.monotonic() + grace
    state.set_phase(Phase.DRAINING)
    for table in tables:
        table.refuse_new()
    # Every table is waited for, also when an earlier one used the grace up.
    ended = [table.wait_until_none(max(deadline - time.monotonic(), 0)) for table in tables]
    left = sum(len(table) for table in tables)
    for table in tables:
        table.revoke_all()
    if left:
        _LOG.warning("%d leases did not end within %g s of draining; they are revoked", left, grace)
    return all(ended)
