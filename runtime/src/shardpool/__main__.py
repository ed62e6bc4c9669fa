"""`python -m shardpool`: the same as the `shardpool` command."""

from shardpool.cli import main

main()
