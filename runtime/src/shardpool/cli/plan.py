"""`shardpool plan`."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from shardpool.errors import ConfigurationError
from shardpool.settings import LAYOUTS
from shardpool.topology import ENGINES, SHAPES, WEIGHTS


@click.command()
@click.option("--release", default="model", show_default=True, help="Name of the release; Services are named after it.")
@click.option("--namespace", default="default", show_default=True, help="Namespace of the release.")
@click.option("--shape", type=click.Choice(SHAPES), default="perPod", show_default=True, help="How ranks lie in pods.")
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default=None,
    help="Which bytes a rank holds.  [default: by shape and world]",
)
@click.option("--world", type=click.IntRange(1, 65536), default=None, help="Number of ranks; or give the sizes below.")
@click.option(
    "--tensor-parallel", type=click.IntRange(1, 65536), default=1, show_default=True, help="Tensor parallel size."
)
@click.option(
    "--pipeline-parallel", type=click.IntRange(1, 65536), default=1, show_default=True, help="Pipeline parallel size."
)
@click.option(
    "--data-parallel", type=click.IntRange(1, 65536), default=1, show_default=True, help="Data parallel size."
)
@click.option(
    "--expert-parallel",
    is_flag=True,
    help="Experts are spread: rank = expert index * tensor parallel size + tensor index.",
)
@click.option("--local-ranks", type=click.IntRange(1, 1024), default=None, help="Ranks in a pod.  [default: by shape]")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=6555, show_default=True, help="gRPC port of a pod's first rank."
)
@click.option(
    "--http-port", type=click.IntRange(1, 65535), default=9465, show_default=True, help="Port of readiness and metrics."
)
@click.option("--engine", type=click.Choice(ENGINES), default="none", show_default=True, help="Kind of engine.")
@click.option("--weights", type=click.Choice(WEIGHTS), default="pool", show_default=True, help="Who loads the weights.")
@click.option("--model", default="", help="Hub id; with it the pool's identity is part of the plan.")
@click.option("--revision", default="", help="Pinned revision of the model.")
@click.option("--dtype", default="", help="The identity's dtype.")
@click.option("--quantization", default="", help="The identity's quantization.")
@click.option("--json", "as_json", is_flag=True, help="Print plan.json.")
def plan(
    *,
    shape: str,
    layout: str | None,
    world: int | None,
    tensor_parallel: int,
    pipeline_parallel: int,
    data_parallel: int,
    expert_parallel: bool,
    local_ranks: int | None,
    port: int,
    model: str,
    as_json: bool,
    **given: str,
) -> None:
    """Show rank, Service, port and pod of a topology, as the chart renders it."""
    from shardpool.identity import pool_identity
    from shardpool.settings import Settings
    from shardpool.topology import build_plan

    ranks = tensor_parallel * pipeline_parallel * data_parallel
    if world is not None and ranks not in {1, world}:
        raise ConfigurationError(
            f"tensor, pipeline and data parallel sizes make {ranks} ranks, and --world says {world}",
            hint="give one of both",
        )
    world = world or ranks
    if layout is None:
        layout = (
            "whole"
            if world == 1
            else "sharded"
            if shape == "perRank" or given["weights"] == "modelexpress"
            else "striped"
        )
    if local_ranks is None:
        local_ranks = 1 if shape == "perRank" and layout == "sharded" else world
    identity = None
    if model and given["weights"] == "pool":
        identity = pool_identity(
            Settings(
                model=model,
                revision=given["revision"],
                dtype=given["dtype"],
                quantization=given["quantization"],
                world=world,
                layout=layout,
            )
        )
    found = build_plan(
        release=given["release"],
        namespace=given["namespace"],
        shape=shape,
        layout=layout,
        world=world,
        local_ranks=local_ranks,
        base_port=port,
        http_port=int(given["http_port"]),
        engine=given["engine"],
        weights=given["weights"],
        identity=identity,
    )
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    _print_table(found, tensor_parallel if expert_parallel or tensor_parallel > 1 else world, expert_parallel)


def _print_table(found: dict[str, Any], tensor_size: int, expert_parallel: bool) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from shardpool.topology import coordinates_of

    title = f"{found['release']} in {found['namespace']}: {found['shape']}, {found['layout']}, world {found['world']}"
    table = Table(box=box.SIMPLE, title=title, title_justify="left")
    for heading in (
        "rank",
        "expert" if expert_parallel else "group",
        "tensor",
        "Service",
        "port",
        "target port",
        "pod",
    ):
        table.add_column(heading, justify="left" if heading == "Service" else "right", no_wrap=True)
    for row in found["ranks"]:
        place = coordinates_of(row["rank"], tensor_size)
        cells = (
            row["rank"],
            place.group,
            place.tensor,
            row["service"],
            row["port"],
            row["targetPort"],
            row["podIndex"],
        )
        table.add_row(*map(str, cells))
    Console(soft_wrap=not sys.stdout.isatty()).print(table)
