# ModelExpress's own package on this machine's CPU, against ours. The environment is made once and kept.
INTEROP_VENV := .cache/interop
INTEROP_READY := $(INTEROP_VENV)/.ready

.PHONY: interop-test
interop-test: $(INTEROP_READY) ## ModelExpress 0.7.0 reads from us and we from it, in real processes (Debian: installs python3-torch)
	PYTHONPATH=runtime/src $(INTEROP_VENV)/bin/python -m pytest tests/interop -p no:cacheprovider

$(INTEROP_READY): tests/interop/prepare.sh tests/interop/requirements.txt
	tests/interop/prepare.sh $(INTEROP_VENV) tests/interop/requirements.txt
	touch $@
