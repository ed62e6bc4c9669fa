"""Alerts and dashboard speak of metrics that exist, and every alert has its runbook."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from chartlib import CHART, ROOT

RUNBOOKS = ROOT / "docs" / "runbooks"
ALERTS = sorted((CHART / "files" / "alerts").glob("*.yaml"))
DASHBOARD = (CHART / "files" / "dashboard.json").read_text()
# What the runtime serves; its own tests hold it to the same names.
METRICS = {
    "shardpool_ready",
    "shardpool_bytes_total",
    "shardpool_shard_bytes",
    "shardpool_verified_bytes",
    "shardpool_pull_seconds",
    "shardpool_pieces_refetched_total",
    "shardpool_peers_rejected_total",
    "shardpool_fallbacks_total",
    "shardpool_served_bytes_total",
    "shardpool_leases",
    "shardpool_readers",
    "shardpool_transport_info",
    "shardpool_info",
    "shardpool_audit_failures_total",
    "shardpool_rank_restarts_total",
    "shardpool_gate_engine_healthy",
    "shardpool_gate_rank_published",
}
LABELS = {
    "origin": {"peer", "seed", "resume"},
    "reason": {"identity", "rank", "catalog", "protocol", "corrupt", "stalled", "unreachable", "busy"},
    "transport": {"nixl", "stream"},
}
one_alert = pytest.mark.parametrize("path", ALERTS, ids=[path.stem for path in ALERTS])


def alert(path) -> dict:
    return yaml.safe_load(path.read_text())


def assert_known(expression: str) -> None:
    used = set(re.findall(r"shardpool_[a-z_]+", expression))
    assert used, "an expression is about the release's metrics"
    assert used <= METRICS
    for label, value in re.findall(r'\b(origin|reason|transport)=~?"([^"]+)"', expression):
        assert set(value.split("|")) <= LABELS[label]


@one_alert
def test_an_alert_is_in_a_file_of_its_name(path) -> None:
    assert alert(path)["alert"] == path.stem


@one_alert
def test_an_alert_uses_metrics_of_the_runtime(path) -> None:
    assert_known(alert(path)["expr"])


@one_alert
def test_an_alert_is_about_one_release(path) -> None:
    expression = alert(path)["expr"]
    series = re.findall(r"shardpool_[a-z_]+(\{[^}]*\})?", expression)
    assert all("@JOB@" in selector for selector in series), "every series is selected by namespace and release"


@one_alert
def test_an_alert_says_what_and_where_to_read_on(path) -> None:
    annotations = alert(path)["annotations"]
    assert annotations["runbook_url"] == f"@RUNBOOKS@/{path.stem}.md"
    assert annotations["summary"]
    assert annotations["description"]
    assert alert(path)["labels"]["severity"] in ("info", "warning", "critical")


@one_alert
def test_an_alert_has_a_runbook(path) -> None:
    text = (RUNBOOKS / f"{path.stem}.md").read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    assert headings == [path.stem, "What it means", "What it costs", "Look", "Do"]
    assert f"[{path.stem}]({path.stem}.md)" in (RUNBOOKS / "README.md").read_text()


def test_a_runbook_has_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"} == {path.stem for path in ALERTS}


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)
def test_links_between_runbooks_lead_somewhere(path) -> None:
    for target in re.findall(r"\]\((\w+\.md)\)", path.read_text()):
        assert (RUNBOOKS / target).exists(), target


def test_the_dashboard_shows_metrics_of_the_runtime() -> None:
    expressions = [target["expr"] for panel in json.loads(DASHBOARD)["panels"] for target in panel["targets"]]
    for expression in expressions:
        assert_known(expression)
    asked = " ".join(expressions)
    for what in ("bytes_total", "pull_seconds", "fallbacks_total", 'reason=~"identity'):
        assert what in asked


def test_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(DASHBOARD)["panels"]:
        grid = panel["gridPos"]
        for x in range(grid["x"], grid["x"] + grid["w"]):
            for y in range(grid["y"], grid["y"] + grid["h"]):
                assert (x, y) not in taken, f"{panel['title']} over {taken.get((x, y))}"
                assert x < 24
                taken[x, y] = panel["title"]
