# One replica's numbers, as ratios in one run. nginx-light and curl for one contender; iperf3, iproute2 and root for the shaped link.
BENCH_FLAGS ?=
.PHONY: bench
bench: setup ## Ratios in one run: a verified pull, catalog exchange, failure tax, memory, idle CPU, start-up; targets beside them
	PYTHONPATH=tests/bench $(BIN)/python -m ratios $(BENCH_FLAGS)
