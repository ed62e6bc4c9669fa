SIM_PAGE := docs/benchmarks/simulation.md
.PHONY: sim sim-large sim-page
sim: setup ## Simulate pools in virtual time: time, storage, uploads, control traffic (options: SIM="-n 4,16 --churn 0.1")
	$(BIN)/python tests/sim/simulate.py $(SIM)
sim-large: setup ## The same for 1,000 replicas (minutes)
	$(BIN)/python tests/sim/simulate.py --large
sim-page: setup ## Simulate what docs/benchmarks/simulation.md shows and lacks, and write it (half an hour; SIM="--only growth", --fresh, --report-only)
	$(BIN)/python tests/sim/simulate.py --page $(SIM_PAGE) $(SIM)
