"""Messages of grpc.health.v1, gRPC's health checking protocol. Their types are in the stub beside this file."""

from shardpool.wire.descriptors import load_names

globals().update(load_names("health"))
