"""`grpc.health.v1` as Kubernetes' probes and other clients ask for it."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import pytest
from pool_peers import Shard, Source

from shardpool.source.publication import Publication
from shardpool.swarm.state import Phase
from shardpool.wire import health

Start = Callable[..., Source]
SERVING = health.HealthCheckResponse.SERVING
NOT_SERVING = health.HealthCheckResponse.NOT_SERVING


def _check(source: Source, service: str) -> int:
    with grpc.insecure_channel(source.endpoint.target) as channel:
        call = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health.HealthCheckRequest.SerializeToString,
            response_deserializer=health.HealthCheckResponse.FromString,
        )
        return call(health.HealthCheckRequest(service=service), timeout=20).status


def test_serving_follows_the_phase(shard: Shard, start_source: Start) -> None:
    source = start_source(shard, held=[0])
    assert _check(source, "") == NOT_SERVING
    assert _check(source, "shardpool.v1.PoolService") == SERVING, "a replica that is filling serves its pieces"
    assert _check(source, "model_express.p2p.WorkerService") == NOT_SERVING
    source.state.set_phase(Phase.READY)
    source.server.publish(Publication("0123456789abcdef", 0, list))
    assert _check(source, "") == SERVING
    assert _check(source, "model_express.p2p.WorkerService") == SERVING
    source.server.drain(1)
    assert {_check(source, name) for name in ("", "shardpool.v1.PoolService")} == {NOT_SERVING}


def test_an_unknown_service_is_not_found(shard: Shard, start_source: Start) -> None:
    source = start_source(shard)
    with pytest.raises(grpc.RpcError) as caught:
        _check(source, "what.is.this")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_watcher_is_told_of_each_change_and_of_the_end(shard: Shard, start_source: Start) -> None:
    source = start_source(shard, held=[])
    with grpc.insecure_channel(source.endpoint.target) as channel:
        watch = channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health.HealthCheckRequest.SerializeToString,
            response_deserializer=health.HealthCheckResponse.FromString,
        )
        told = watch(health.HealthCheckRequest(), timeout=20)
        assert next(told).status == NOT_SERVING
        source.state.set_phase(Phase.READY)
        assert next(told).status == SERVING
        unknown = watch(health.HealthCheckRequest(service="nothing"), timeout=20)
        assert next(unknown).status == health.HealthCheckResponse.SERVICE_UNKNOWN
        source.server.stop()
        with pytest.raises((grpc.RpcError, StopIteration)):
            next(told)
