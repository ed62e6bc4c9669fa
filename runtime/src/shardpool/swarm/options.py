"""What a load may be told. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from shardpool.settings import Settings

SETTLE_SECONDS = 3.0
FIRST_LOOK_SECONDS = 8.0  # Kubernetes takes a second to list a pod, and an answer of its DNS may be 5 s old


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmOptions:
    """Bounds and habits of one load.

    Args:
        seed_concurrency: reads from the seed under way at once.
        seed_readers: how many replicas may read the seed at once; 0 is no limit.
        content_digest: pinned content digest (32 bytes), or empty.
        stall_seconds: a transfer without progress for so long is given up.
        wait_for_peers_seconds: without a seed, how long nothing useful may be found before the load fails.
        round_seconds: pause before every known endpoint is tried once more; doubles up to `longest_round_seconds`, +- a quarter.
        first_look_seconds: how long the first read from the seed waits for a list of the pool that has this replica.
        settle_seconds: how long it then waits for the first peers of that list to answer.
        takeover_seconds: how long the share of a member that cannot be seen may lie before the next in line looks for that member.
        window: pieces under way at once, before the measured speed asks for more.
        sources: how many sources are read from at once.
        meets_callers: a peer that calls is called back, also before the listing has it.
        passes_on: this replica serves what it has, and is a member of its pool's list.
        longest_wake: the scheduler wants to be called at least so often.
    """

    seed_concurrency: int = 4
    seed_readers: int = 0
    content_digest: bytes = b""
    stall_seconds: float = 10.0
    wait_for_peers_seconds: float = 30.0
    round_seconds: float = 0.5
    longest_round_seconds: float = 5.0
    first_look_seconds: float = FIRST_LOOK_SECONDS
    settle_seconds: float = SETTLE_SECONDS
    takeover_seconds: float = 3.0
    window: int = 12
    sources: int = 3
    meets_callers: bool = True
    passes_on: bool = True
    longest_wake: float = 1.0

    @classmethod
    def of(cls, settings: Settings, rank: int = 0, *, passes_on: bool = True) -> SwarmOptions:
        """The options of a global rank, that serves (`passes_on`) or only receives."""
        named = settings.discovery or settings.peers_pattern or settings.peers or settings.metadata_backend
        alone = not named or settings.discovery == "none"
        return cls(
            seed_concurrency=settings.seed_concurrency,
            seed_readers=settings.seed_readers,
            content_digest=settings.content_digest_of(rank) or b"",
            first_look_seconds=0.0 if alone else FIRST_LOOK_SECONDS,
            settle_seconds=0.0 if alone else SETTLE_SECONDS,
            stall_seconds=settings.stall_seconds,
            meets_callers=not alone,
            passes_on=passes_on,
            wait_for_peers_seconds=0.0 if alone else settings.wait_for_peers_seconds,
            round_seconds=max(0.05, settings.source_backoff_seconds),
        )


__all__ = ["SwarmOptions"]
