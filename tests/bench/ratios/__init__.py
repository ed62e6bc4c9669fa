"""What one replica costs, next to what its targets are: real processes, everything in one run.

`table` has rows and verdicts, `replicas` starts `shardpool` processes, `footprint` reads what processes use. Each other module is a
section: it measures and yields rows.
"""
