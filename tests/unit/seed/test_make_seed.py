"""From settings to a seed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shardpool.errors import ConfigurationError
from shardpool.seed import make_seed
from shardpool.seed.directory import DirectorySeed
from shardpool.seed.hub import HubSeed
from shardpool.seed.s3 import S3Seed
from shardpool.settings import Settings


@pytest.mark.parametrize(
    ("text", "kind"),
    [("hf", HubSeed), ("directory:/srv/model", DirectorySeed), ("s3://bucket/prefix", S3Seed), ("none", type(None))],
)
def test_kind_follows_from_the_setting(text: str, kind: type) -> None:
    seed = make_seed(Settings(seed=text, model="acme/tiny"))
    assert type(seed) is kind
    if seed:
        seed.close()


@pytest.mark.parametrize("text", ["hub", "/srv/model", "http://x/y", "gs://bucket/x", "hf:acme/tiny", "directory"])
def test_unknown_kind_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(ConfigurationError, match="use hf, directory:PATH, s3://BUCKET/PREFIX or none"):
        make_seed(Settings(seed=text))


@pytest.mark.parametrize(
    ("module", "text", "extra"),
    [("huggingface_hub", "hf", "hub"), ("urllib3", "hf", "hub"), ("boto3", "s3://bucket/x", "s3")],
)
def test_missing_package_is_named_with_the_extra_that_brings_it(module: str, text: str, extra: str) -> None:
    script = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from shardpool.seed import make_seed\nfrom shardpool.settings import Settings\n"
        "from shardpool.errors import ConfigurationError\n"
        f"try: make_seed(Settings(seed={text!r}, model='acme/tiny'))\nexcept ConfigurationError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert f"not installed ({module}); pip install 'shardpool[{extra}]'" in done.stdout


def test_clients_are_imported_only_when_their_seed_is_used() -> None:
    script = (
        "import sys\nfrom shardpool.seed import make_seed\nfrom shardpool.settings import Settings\n"
        "make_seed(Settings(seed='directory:/x')); make_seed(Settings())\n"
        "print(sorted({'boto3', 'botocore', 'huggingface_hub', 'urllib3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
