"""Every metric of shardpool: its name, kind, help and labels, in one table. `docs/metrics.md` is made from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PREFIX = "shardpool_"


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric: `kind` is `gauge` or `counter`; `labels` come beside `rank`, which rank metrics always have."""

    kind: str
    help: str
    labels: tuple[str, ...] = ()


RANK_METRICS: Mapping[str, Definition] = {
    "shardpool_ready": Definition("gauge", "1 when this rank's whole shard is committed and served."),
    "shardpool_bytes_total": Definition(
        "counter", "Verified bytes by where they came from: peer, seed, resume.", ("origin",)
    ),
    "shardpool_shard_bytes": Definition("gauge", "Size of the rank's shard."),
    "shardpool_verified_bytes": Definition("gauge", "Bytes of the shard that are verified now."),
    "shardpool_pull_seconds": Definition("gauge", "How long the last load took; absent until it has ended."),
    "shardpool_pieces_refetched_total": Definition("counter", "Pieces that were asked for more than once."),
    "shardpool_peers_rejected_total": Definition("counter", "Peers that were not used, by reason.", ("reason",)),
    "shardpool_fallbacks_total": Definition(
        "counter", "Times that missing pieces were taken from the seed although peers were there.", ("reason",)
    ),
    "shardpool_served_bytes_total": Definition("counter", "Bytes sent to peers."),
    "shardpool_leases": Definition("gauge", "Live leases."),
    "shardpool_readers": Definition("gauge", "Receivers being served now."),
    "shardpool_transport_info": Definition("gauge", "1, labelled with the transport in use.", ("transport",)),
    "shardpool_info": Definition(
        "gauge", "1, labelled with what this replica is.", ("model", "revision", "mx_source_id", "layout", "version")
    ),
    "shardpool_audit_failures_total": Definition("counter", "Served pieces that no longer matched their digest."),
    "shardpool_rank_restarts_total": Definition("counter", "Times that the process of this rank was started again."),
}

GATE_METRICS: Mapping[str, Definition] = {
    "shardpool_gate_engine_healthy": Definition("gauge", "1 when the engine's health URL answers 200."),
    "shardpool_gate_rank_published": Definition(
        "gauge", "1 when this local rank has published its tensors.", ("rank",)
    ),
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric, with all its labels."""

    name: str
    value: float
    labels: Mapping[str, str]


def render(samples: Iterable[Sample]) -> bytes:
    """The samples in Prometheus' text format. A name that is not in the tables raises KeyError."""
    from prometheus_client.exposition import generate_latest

    return generate_latest(_Collected(samples))


class _Collected:
    """What prometheus_client wants to see of a registry."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families: dict[str, Metric] = {}
        for sample in self._samples:
            gate = sample.name in GATE_METRICS
            definition = GATE_METRICS[sample.name] if gate else RANK_METRICS[sample.name]
            labels = definition.labels if gate else ("rank", *definition.labels)
            family = families.get(sample.name)
            if family is None:
                make = CounterMetricFamily if definition.kind == "counter" else GaugeMetricFamily
                family = families[sample.name] = make(sample.name, definition.help, labels=labels)
            family.add_metric([sample.labels[label] for label in labels], sample.value)  # type: ignore[attr-defined]
        return families.values()
