# The image, and the wheels that it is made of.
.PHONY: image image-wheels image-lock image-size

IMAGE ?= ghcr.io/shardpool/shardpool
IMAGE_VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' runtime/pyproject.toml)
IMAGE_TAG ?= $(IMAGE_VERSION)
BASE_IMAGE ?= python:3.11-slim-bookworm
IMAGE_PYTHON ?= 3.11
IMAGE_ARCH ?= $(patsubst x86_64,amd64,$(patsubst aarch64,arm64,$(shell uname -m)))
IMAGE_REVISION := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
WHEELS := images/runtime/wheels/$(IMAGE_ARCH)

image: image-wheels ## Build shardpool's image (IMAGE, IMAGE_TAG, BASE_IMAGE, IMAGE_ARCH)
	docker build -q --build-arg BASE_IMAGE=$(BASE_IMAGE) --build-arg TARGETARCH=$(IMAGE_ARCH) --build-arg VERSION=$(IMAGE_VERSION) \
	  --build-arg REVISION=$(IMAGE_REVISION) -t $(IMAGE):$(IMAGE_TAG) images/runtime

image-wheels: $(WHEELS)/.complete ## Collect the wheels that the image installs (IMAGE_ARCH, IMAGE_PYTHON)
	rm -f $(WHEELS)/shardpool-*.whl
	$(BIN)/python -m pip wheel -q --no-deps -w $(WHEELS) ./runtime

$(WHEELS)/.complete: images/runtime/requirements.txt images/runtime/lock.py
	rm -rf $(WHEELS)
	mkdir -p $(WHEELS)
	$(BIN)/python -m pip download -q --no-deps --require-hashes $$($(BIN)/python images/runtime/lock.py --python $(IMAGE_PYTHON) --arguments $(IMAGE_ARCH)) \
	  -d $(WHEELS) -r images/runtime/requirements.txt
	touch $@

image-lock: ## Choose anew the versions that the image installs (IMAGE_PYTHON)
	$(BIN)/python images/runtime/lock.py --python $(IMAGE_PYTHON) > images/runtime/requirements.txt.new
	mv images/runtime/requirements.txt.new images/runtime/requirements.txt

image-size: ## Say what the image's parts weigh
	docker run --rm --entrypoint /bin/sh $(IMAGE):$(IMAGE_TAG) -c 'du -xsm / 2>/dev/null; du -xsm /opt/shardpool; du -xsm /opt/shardpool/lib/python3*/site-packages/* | sort -rn | head -12'
