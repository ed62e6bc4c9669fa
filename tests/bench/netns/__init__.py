"""A pool of real processes on shaped links: network namespaces, contenders, faults, tables and plots.

`make bench-swarm` runs it; `docs/benchmarks/swarm.md` is what it wrote last.
"""
