# The swarm on shaped links. Needs root (namespaces, htb), iproute2, iperf3, nginx, aria2.
SWARM_FLAGS ?=
.PHONY: bench-swarm
bench-swarm: setup ## Real processes in network namespaces: star, whole copies, BitTorrent and shardpool on shaped links (root)
	PYTHONPATH=tests/bench:tests/tools $(BIN)/python -m netns $(SWARM_FLAGS)
