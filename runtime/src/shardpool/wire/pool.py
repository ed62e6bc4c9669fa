"""Messages of shardpool.v1, what replicas say to each other. Their types are in the stub beside this file."""

from shardpool.wire.descriptors import load_names

globals().update(load_names("pool"))
