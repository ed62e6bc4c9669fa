"""shardpool: model weights from the replicas that already hold them."""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "receive_tensors":  # the library call; what it needs is loaded when it is first used
        from shardpool.interop import receive_tensors

        return receive_tensors
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
