# Everything here sets itself up: `make demo` and `make test` need Python 3.11+ and make, no root, no
# cluster, no GPU. `make e2e` needs root on Debian or Ubuntu, or E2E_EXISTING=1 with a KUBECONFIG.
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
PYTHON ?= python3
# of tests, each with an API server of its own (half a GiB)
WORKERS ?= 2
# where engines are installed for the tests that need a real one
ENGINES := $${ONGGI_E2E_DIR:-$${XDG_CACHE_HOME:-$$HOME/.cache}/onggi-e2e}

.PHONY: help demo test sglang vllm lint format images e2e soak bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	       "Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || { rm -rf $(VENV); $(PYTHON) -m venv $(VENV); } || { \
	  rm -rf $(VENV); echo "A virtual environment cannot be made: on Debian and Ubuntu install" \
	       "the package python3-venv." >&2; exit 1; }
	@echo "setting up $(VENV) (the first time downloads PyTorch, about 3 GB)"
	@$(PY) -m pip install -q --disable-pip-version-check "uv>=0.5,<1"
	@$(VENV)/bin/uv pip install -q --compile-bytecode --python $(PY) -e ".[dev,demo,bench]"
	@touch $@

demo: $(READY) ## a real model, cold, warm from memory and warm from disk after a restart
	@$(PY) examples/01-warm-restart/demo.py

test: $(READY) ## unit, property, agent and chart tests
	@$(PY) -m pytest -n $(WORKERS) --dist loadfile

sglang: ## the tests of its backend against SGLang's own classes (Debian 12; into ~/.cache)
	@e2e/prepare packages python engine sglang
	@ONGGI_NEEDS_SGLANG=1 $(ENGINES)/sglang/bin/python -m pytest -p no:cacheprovider -k wheel \
	  tests/client/test_sglang_storage.py tests/client/test_sglang_pools.py tests/client/test_sglang_wheel.py

vllm: $(READY) ## the tests of its connectors against vLLM's own classes (Debian 12; into ~/.cache)
	@e2e/prepare packages python engine
	@$(ENGINES)/venv/bin/uv pip install -q --python $(ENGINES)/engine/bin/python --target build/vllm-tests \
	  pytest pytest-timeout pytest-asyncio hypothesis
	@PYTHONPATH=$(CURDIR)/build/vllm-tests ONGGI_AGENT_PYTHON=$(CURDIR)/$(PY) \
	  $(ENGINES)/engine/bin/python -m pytest -p no:cacheprovider tests/client/test_vllm_tier.py tests/client/test_vllm_tier_wheel.py tests/client/test_vllm_events.py

lint: $(READY) ## format, lint, types, import contracts
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy operator/onggi_operator sidecar/onggi_core sidecar/onggi_sidecar sidecar/onggi sidecar/onggi_library bench
	@MYPYPATH=e2e:e2e/features $(VENV)/bin/mypy e2e/node/*.py e2e/rig/*.py e2e/features/*.py
	@$(VENV)/bin/mypy --python-version 3.10 --follow-imports=silent sidecar/onggi_core sidecar/onggi
	@$(VENV)/bin/lint-imports

format: $(READY) ## put the code in the one format
	@$(VENV)/bin/ruff format . && $(VENV)/bin/ruff check --fix .

images: ## container images, as archives under build/images
	@e2e/images

e2e: $(READY) ## the whole chain on a real Kubernetes with a real engine
	@e2e/run

soak: $(READY) ## what takes longer: simulator, fuzzers, faults by the hundred; last real engines (root, Debian 12)
	@$(VENV)/bin/uv pip install -q --python $(PY) -e ".[fuzz]" || echo "no atheris for this Python: its tests are skipped"
	@$(PY) -m pytest -m soak -v -n $(WORKERS) --dist load
	@$(MAKE) --no-print-directory sglang vllm
	@ONGGI_ENGINE_PYTHON=$(ENGINES)/engine/bin/python ONGGI_SGLANG_PYTHON=$(ENGINES)/sglang/bin/python \
	  $(PY) -m pytest -m engine
	@e2e/run -m soak

bench: $(READY) ## every figure of docs/performance.md, beside its peers (installed into ~/.cache)
	@$(PY) -m bench

clean: ## what the above made here; caches of bench and end-to-end tests stay in ~/.cache
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
