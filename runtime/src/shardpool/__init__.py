"""shardpool: model weights from the replicas that already hold them."""

__version__ = "0.1.0"
