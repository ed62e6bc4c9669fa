"""Where a model's first copy lies: one interface, and the back ends behind it."""

from __future__ import annotations

from shardpool.errors import ConfigurationError
from shardpool.seed.base import Seed, SeedFile
from shardpool.settings import Settings


def make_seed(settings: Settings) -> Seed | None:
    """The seed that the settings name; None for `none`. Nothing is read yet.

    Raises:
        ConfigurationError: no known kind, a malformed address, or an optional dependency that is not installed.
    """
    text = settings.seed
    if text in {"", "none"}:
        return None
    if text == "hf":
        from shardpool.seed.hub import HubSeed

        return HubSeed(
            settings.model,
            settings.revision,
            endpoint=settings.hub_endpoint,
            token=settings.hub_token,
            connections=settings.seed_concurrency,
        )
    if text.startswith("directory:"):
        from shardpool.seed.directory import DirectorySeed

        return DirectorySeed(text.removeprefix("directory:"), model=settings.model, revision=settings.revision)
    if text.startswith("s3://"):
        from shardpool.seed.s3 import S3Seed

        return S3Seed(
            text, endpoint=settings.s3_endpoint, region=settings.s3_region, connections=settings.seed_concurrency
        )
    raise ConfigurationError(
        f"SHARDPOOL_SEED={text!r} is no kind of seed", hint="use hf, directory:PATH, s3://BUCKET/PREFIX or none"
    )


__all__ = ["Seed", "SeedFile", "make_seed"]
