# Two commands are enough: `make compare` runs the main job, `make test` the tests. Each sets up what it needs.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
UV_VERSION := 0.13.9
BIN := .venv/bin

export EQUIPOISE_CACHE ?= $(HOME)/.cache/equipoise
# The tests start hundreds of short processes; where bytecode is not kept, each compiles all that it imports, for seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

# --- Environments --------------------------------------------------------------------------------------------------

.venv/.ready: uv.lock pyproject.toml evals/pyproject.toml service/pyproject.toml
	@test -x $(BIN)/uv || { $(PYTHON) -m venv .venv && $(BIN)/python -m pip install -q --disable-pip-version-check uv==$(UV_VERSION); }
	@$(BIN)/uv sync -q --frozen --compile-bytecode
	@touch $@

.PHONY: venv
venv: .venv/.ready ## Make .venv: service and evals, without torch (seconds)

.PHONY: setup
setup: .venv/.ready ## Set everything up: .venv, the engine environment, the plugin, the embedded model (minutes, once)
	@$(BIN)/equipoise setup

.PHONY: lock
lock: .venv/.ready ## Resolve the lock files again
	@$(BIN)/uv lock
	@$(BIN)/uv pip compile -q --python-version 3.11 --python-platform x86_64-manylinux_2_36 --generate-hashes \
		--no-header --no-annotate backends/engine.in -o backends/engine.lock

# --- The main job --------------------------------------------------------------------------------------------------

MODEL ?=
# Without a GPU a step takes 75 to 300 ms, so the default is what a laptop measures in minutes. COMPARE follows it, and
# of an option that is given twice the last one counts.
ON_CPU := --questions 16 --shots 2 --pairs-max 2 --batch-sizes 1,4 --primary-batch 4 --steps-per-block 20
SMALL := $(if $(wildcard /dev/nvidia[0-9]*),,$(ON_CPU))
COMPARE ?=

.PHONY: compare
compare: setup ## Compare both arms on this machine; MODEL= a hub id or a folder, COMPARE= options that change or add to the default
	@$(BIN)/equipoise compare $(if $(MODEL),'$(MODEL)') $(SMALL) $(COMPARE); code=$$?; \
	if [ $$code -le 2 ]; then exit 0; else exit $$code; fi

POLICY ?=
GATE ?=

.PHONY: gate gate-unanswered
gate-unanswered: # where setting up fails nobody must find an older answer
	@rm -f gate.json gate.xml

gate: gate-unanswered setup ## Gate a release: MODEL=, POLICY= a YAML file, GATE= further options; gate.json holds the exit code of the CLI
	@$(BIN)/equipoise gate $(if $(MODEL),'$(MODEL)') $(if $(POLICY),--policy '$(POLICY)') $(GATE)

.PHONY: demo
demo: .venv/.ready ## A decisive verdict from simulated engines, in at most a minute; COMPARE= options that change it
	@$(BIN)/python -m tests.fakes.demo $(COMPARE)

.PHONY: gallery
gallery: .venv/.ready ## Six simulated comparisons, one for each overall word, into the demo's data folder (a minute)
	@$(BIN)/python -m tests.fakes.gallery

.PHONY: serve
serve: setup ## Run the service and its dashboard on 127.0.0.1
	@$(BIN)/equipoise serve

# What was kept stays until a whole new run has succeeded.
KEEP_AS = tee docs/evidence/$(1).txt.new && mv docs/evidence/$(1).txt.new docs/evidence/$(1).txt
KEEP = $(call KEEP_AS,$@)

# --- Checks and tests ----------------------------------------------------------------------------------------------

.PHONY: check
check: .venv/.ready ## Format, lint, types, import contracts, Dockerfiles and compose file
	@$(BIN)/ruff format --check -q .
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy
	@PYTHONPATH=backends $(BIN)/lint-imports
	@$(BIN)/hadolint docker/*.Dockerfile
	@$(BIN)/check-jsonschema -q --builtin-schema vendor.compose-spec docker/compose.yaml

.PHONY: test
test: setup check ## Set everything up and run the tests; CI adds test-chaos and test-postgres beside it; test-ray needs more
	@$(BIN)/python -m pytest -n 2 tests/unit tests/property tests/contract --ignore tests/contract/service \
		--cov=equipoise_evals --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=100
	@: "Four workers, since on two cores these tests mostly wait for processes; files that take minutes come first"
	@$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder tests/integration tests/guarantee tests/contract/service -m "not engine and not chaos"
	@$(MAKE) --no-print-directory browser
	@$(BIN)/python -m pytest tests/integration -m "engine and not chaos"
	@$(MAKE) --no-print-directory test-backends

.PHONY: chromium
chromium: ## Install Debian's Chromium where it is missing, as root; otherwise say how to get it
	@if ! command -v chromium > /dev/null && [ -z "$$TEST_CHROMIUM" ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
			echo "Chromium is missing; installing Debian's: apt-get install --no-install-recommends chromium fonts-dejavu-core"; \
			apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core; \
		else echo "Chromium is missing; get it with: sudo apt-get install chromium"; fi; fi

.PHONY: browser
browser: .venv/.ready chromium ## Test the pages in Debian's Chromium; as root it is installed with apt-get where it is missing
	@$(BIN)/python -m pytest tests/browser

SERVICE_TESTS := tests/integration/service
# Files that take minutes come first, so that no worker is left alone with one.
ON_POSTGRES := $(SERVICE_TESTS) tests/contract/service tests/unit/service
POSTGRES_TESTS ?= -n 4 --dist loadfile --no-loadscope-reorder -m "not chaos and not engine" $(ON_POSTGRES)
HAVE_POSTGRES := { command -v initdb || ls /usr/lib/postgresql/*/bin/initdb; } > /dev/null 2>&1

.PHONY: postgres
postgres: ## Install Debian's PostgreSQL where it is missing, as root; otherwise say how to get it, an error where CI is set
	@if ! $(HAVE_POSTGRES); then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
			echo "PostgreSQL is missing; installing Debian's: apt-get install --no-install-recommends postgresql"; \
			apt-get update -qq && apt-get install -qq -y --no-install-recommends postgresql-common && \
			: "a private cluster is all that is wanted, so none is made of the package's own" && \
			sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf && \
			apt-get install -qq -y --no-install-recommends postgresql; \
		else echo "PostgreSQL is missing, so these tests are left out; get it with: sudo apt-get install postgresql"; \
			[ -z "$$CI" ]; fi; fi

.PHONY: test-postgres
test-postgres: .venv/.ready postgres ## Run every test of the service over Debian's PostgreSQL, installed as root where it is missing (six to ten minutes)
	@if $(HAVE_POSTGRES); then $(BIN)/python -m tests.support.postgres $(BIN)/python -m pytest $(POSTGRES_TESTS); fi

.PHONY: browser-postgres
browser-postgres: .venv/.ready postgres chromium ## Test the pages over Debian's PostgreSQL: their driver leaves no event loop to the tests of the service
	@if $(HAVE_POSTGRES); then $(BIN)/python -m tests.support.postgres $(BIN)/python -m pytest tests/browser; fi

.PHONY: test-backends
test-backends: setup ## The plugin's own tests, inside the engine environment
	@$(BIN)/equipoise setup --print engine-python | { read -r engine; \
	: "TRTLLM MHA's hooks go into SGLang's own registry, so their tests get a process without anybody else's hooks"; \
	PYTHONPATH=backends "$$engine" -m pytest -q -c tests/backends/pytest.ini tests/backends/test_trtllm.py && \
	PYTHONPATH=backends "$$engine" -m pytest -q -c tests/backends/pytest.ini tests/backends --ignore=tests/backends/test_trtllm.py; }

.PHONY: test-chaos
test-chaos: .venv/.ready ## 200 comparisons while services and engines are killed at random, seeded; CI runs it beside test (three to six minutes)
	@$(BIN)/python -m pytest -rP tests/integration/service/test_chaos.py

.PHONY: test-chaos-postgres
test-chaos-postgres: .venv/.ready ## 112 comparisons by pairs of services on one PostgreSQL, stopped and killed, seeded (six to eight minutes)
	@set -o pipefail; $(MAKE) --no-print-directory test-postgres \
		POSTGRES_TESTS="-n 4 --timeout 3600 -rP -m chaos $(SERVICE_TESTS)/test_two_services.py" \
		| $(BIN)/python -m tests.support.kept '^seed |^=.* (passed|failed)' | $(call KEEP_AS,chaos-postgres)

.venv/.ray: .venv/.ready
	@$(BIN)/uv sync -q --frozen --inexact --extra ray --compile-bytecode
	@touch $@

.PHONY: test-ray
test-ray: .venv/.ray ## 60 comparisons over a Ray cluster of three nodes on the loopback, of which one dies (eight minutes)
	@set -o pipefail; $(BIN)/python -m pytest -rP tests/cluster tests/unit/cluster \
		| $(BIN)/python -m tests.support.kept '^on node|^=.* (passed|failed)' | $(call KEEP_AS,ray-cluster)

.PHONY: calibrate
calibrate: .venv/.ready ## How often the judge errs in simulated worlds: the full grid into docs/calibration.md (a quarter of an hour)
	@$(BIN)/equipoise calibrate --output docs/calibration.md
	@$(BIN)/python -m tests.support.bench_verdict --kept

GPU ?=
VERDICT_STEPS := $(shell printf 'aa-8b-%02d ' 1 2 3 4 5 6 7 8 9 10) starts verdict-8b-alone delay-0-alone delay-25-alone delay-50-alone delay-100-alone

.PHONY: bench-verdict
bench-verdict: .venv/.ready ## GPU-seconds to a verdict beside fixed designs, simulated, and of recorded runs, into docs/evidence and docs/calibration.md; GPU=1 measures too
	@set -o pipefail; $(if $(GPU),$(BIN)/python -m tests.gpu.evidence --models '$(MODELS)' $(VERDICT_STEPS);) measured=$$?; \
	$(BIN)/python -m tests.support.bench_verdict | grep '^|' && exit $$measured

.PHONY: bench-grade
bench-grade: .venv/.ready ## CPU time of grading hard texts of a megabyte, into docs/evidence/bench-grade.txt
	@set -o pipefail; $(BIN)/python -m tests.support.megabytes | $(KEEP)

.PHONY: bench-judge
bench-judge: .venv/.ready ## Time and memory of a verdict over the largest comparison, into docs/evidence/bench-judge.txt
	@set -o pipefail; $(BIN)/python -m tests.support.bench_judge | $(KEEP)

.PHONY: bench-cancel
bench-cancel: .venv/.ready ## How long a cancelled comparison leaves anything, at every stage, into docs/evidence/bench-cancel.txt
	@set -o pipefail; $(BIN)/python -m pytest -q -rP -k cancelling_at_any_stage tests/integration/service/test_shelf.py \
		| $(BIN)/python -m tests.support.kept '^cancelled in' \
		| awk '{ print } /^cancelled/ { if ($$(NF - 3) > $$NF) late = 1 } END { exit late }' | $(KEEP)

.PHONY: bench-pages
bench-pages: .venv/.ready ## Lists over 10,000 comparisons and the page of the largest, into docs/evidence/bench-pages.txt
	@set -o pipefail; $(BIN)/python -m tests.support.bench_pages | $(KEEP)

.PHONY: bench-load
bench-load: .venv/.ready ## Lists and pages under load beside a running comparison, into docs/evidence/bench-load.txt
	@set -o pipefail; $(BIN)/python -m tests.support.bench_load | $(KEEP)

.PHONY: bench-scale
bench-scale: .venv/.ready ## 1,000 comparisons a day over 200 GPUs, simulated from measured times, into docs/evidence/bench-scale.txt
	@set -o pipefail; $(BIN)/python -m tests.support.postgres $(BIN)/python -m tests.support.bench_scale | $(KEEP)

.PHONY: bench-reference
bench-reference: setup ## The CPU reference's decode step against torch_native's, into docs/evidence/bench-reference.txt
	@plugin=$$($(BIN)/equipoise setup --print plugin-path); $(BIN)/equipoise setup --print engine-python | { read -r engine; \
	PYTHONPATH=$$plugin SGLANG_PLATFORM=equipoise-cpu OMP_NUM_THREADS=1 "$$engine" -W ignore backends/bench_reference.py | $(KEEP); }

.PHONY: bench-client
bench-client: setup ## Our client and SGLang's against an engine of fixed speed, into docs/evidence/bench-client.txt (ten minutes)
	@$(BIN)/equipoise setup --print engine-python | { read -r engine; set -o pipefail; \
	$(BIN)/python -m tests.support.bench_client "$$engine" "$$(ls -d $(EQUIPOISE_CACHE)/models/*-float32 | head -n 1)" | $(KEEP); }

.PHONY: bench-ray
bench-ray: .venv/.ray ## Four logical nodes against one machine, simulated engines, into docs/evidence/bench-ray.txt (eight minutes)
	@set -o pipefail; $(BIN)/python -m tests.support.bench_ray | $(KEEP)

.PHONY: ray-evidence
ray-evidence: setup .venv/.ray ## Three comparisons of real CPU engines through Ray, into docs/evidence/ray-evidence.txt (ten minutes)
	@set -o pipefail; $(BIN)/python -m tests.support.ray_engines | $(KEEP)

.PHONY: image-service
image-service: ## Build the image of the service without engines
	docker build --file docker/service.Dockerfile --tag equipoise-service .

.PHONY: image-engine
image-engine: ## Build the image of a GPU host: SGLang's own, the plugin and the service
	docker build --file docker/engine.Dockerfile --tag equipoise-engine .

STEP ?=
MODELS ?= models

.PHONY: gpu-evidence
gpu-evidence: .venv/.ready ## Measure on this machine's GPU and keep raw records in docs/evidence; STEP= names, MODELS= a folder
	@$(BIN)/python -m tests.gpu.evidence --models '$(MODELS)' $(STEP)

.PHONY: schemas
schemas: .venv/.ready ## Write the published JSON schemas, the OpenAPI document and the page of preset fields
	@$(BIN)/python -m equipoise_service.engines.presets.document docs/presets.md
	@$(BIN)/python -m equipoise_service.schemas docs/schemas
	@$(BIN)/python -m equipoise_service.api docs/schemas

.PHONY: clean
clean: ## Remove .venv and caches of the checkout; the shared cache stays
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
