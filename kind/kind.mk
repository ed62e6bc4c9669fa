# A pool on a kind cluster: to look at, to show, to test.
.PHONY: kind-up kind-load kind-demo kind-down e2e

KIND ?= kind
KIND_CLUSTER ?= shardpool
KIND_NODE_IMAGE ?=
E2E_CLUSTER ?= shardpool-e2e
E2E_ARGS ?=
E2E_WORKERS ?= 3

kind-up: ## Create the kind cluster (KIND_CLUSTER, KIND_NODE_IMAGE) if it is not there
	@$(KIND) get clusters 2>/dev/null | grep -qx $(KIND_CLUSTER) || \
	  $(KIND) create cluster --name $(KIND_CLUSTER) --config kind/cluster.yaml --wait 120s $(if $(KIND_NODE_IMAGE),--image $(KIND_NODE_IMAGE))

kind-load: kind-up image-demo ## Build the images and load them into the kind cluster
	$(KIND) load docker-image $(IMAGE):$(IMAGE_TAG) $(DEMO_IMAGE) --name $(KIND_CLUSTER)

kind-demo: kind-load ## Show a pool from its first replica to a killed source, with a table after each step
	$(BIN)/python kind/demo.py --kind $(KIND) --cluster $(KIND_CLUSTER) --image $(IMAGE):$(IMAGE_TAG) --demo-image $(DEMO_IMAGE)

kind-down: ## Delete the kind cluster
	$(KIND) delete cluster --name $(KIND_CLUSTER)

e2e: image-e2e ## The end-to-end tests, on a kind cluster of their own (E2E_ARGS=--existing-cluster: on KUBECONFIG's)
	$(BIN)/python -m pytest -c tests/e2e/pytest.ini tests/e2e -n $(E2E_WORKERS) --cluster-name $(E2E_CLUSTER) \
	  --image $(IMAGE):$(IMAGE_TAG) --next-image $(NEXT_IMAGE) --demo-image $(DEMO_IMAGE) --test-image $(E2E_IMAGE) $(E2E_ARGS)
