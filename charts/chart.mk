# The chart's tasks, included by the top Makefile. The programs come from PATH, else Go builds them (charts/tools/tool).
CHART := charts/shardpool
CHART_TOOL := sh charts/tools/tool
CHART_LINT_VALUES := $(CHART)/tests/golden/extra/everything.yaml

.PHONY: chart-test chart-lint chart-unit chart-check chart-golden chart-docs chart-schemas chart-package
chart-test: chart-lint chart-unit chart-check ## The chart: lint, suites, golden renders, schemas, Helm 3 and 4

chart-lint: ## helm lint --strict, by Helm 4 and 3
	helm=$$($(CHART_TOOL) helm) && $$helm lint --strict --quiet $(CHART) --values $(CHART_LINT_VALUES)
	helm=$$($(CHART_TOOL) helm3) && $$helm lint --strict --quiet $(CHART) --values $(CHART_LINT_VALUES) --kube-version 1.34.0

chart-unit: ## The chart's helm-unittest suites
	unittest=$$($(CHART_TOOL) helm-unittest) && $$unittest --file 'tests/**/*_test.yaml' $(CHART)

chart-check: setup ## Golden renders, kubeconform, sizes, upgrades, deployments, alerts, documentation
	for name in helm helm3 kubeconform; do $(CHART_TOOL) $$name >/dev/null || exit 1; done
	$(BIN)/python -m pytest tests/chart -n 2 -q

chart-golden: setup ## Make the golden renders anew; read the difference before you commit it
	$(BIN)/python charts/tools/golden.py --write

chart-docs: setup ## Make the chart's README and the schema's descriptions anew
	$(BIN)/python charts/tools/values_docs.py --write

chart-schemas: setup ## Make charts/tools/schemas anew from pinned Go modules
	$(BIN)/python charts/tools/schemas.py

chart-package: ## The chart as a package in dist/
	helm=$$($(CHART_TOOL) helm) && $$helm package $(CHART) --destination dist
