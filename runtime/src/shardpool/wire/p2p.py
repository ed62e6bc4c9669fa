"""Messages of model_express.p2p, the ModelExpress contract. Their types are in the stub beside this file."""

from shardpool.wire.descriptors import load_names

globals().update(load_names("p2p"))
