# Every task of the project; `make` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help
help: ## List the tasks
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

-include charts/chart.mk
-include tests/interop/interop.mk
-include tests/bench/bench.mk
-include images/image.mk
-include kind/kind.mk
