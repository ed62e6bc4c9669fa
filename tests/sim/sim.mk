.PHONY: sim sim-large
sim: setup ## Simulate pools of 2 to 32 replicas in virtual time: time, storage, uploads, control traffic (options: SIM="-n 4,16 --churn 0.1")
	$(BIN)/python tests/sim/simulate.py $(SIM)
sim-large: setup ## The same for 1,000 replicas (minutes)
	$(BIN)/python tests/sim/simulate.py --large
