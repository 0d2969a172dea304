# Two commands are enough: `make run` and `make test`. Both set up what they need in .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install
# The same, which says how far it is.
INSTALL := $(BIN)/python -m tuning.bare.installing
export PORT ?= 8000

# What is installed first; CI asks for all at once, which pip works out and compiles once.
NEEDED ?= requirements-worker.txt

.DEFAULT_GOAL := help
.PHONY: help run test test-all test-changed test-steady test-times test-fast test-cheats mutants chaos lint ruff types imports migrations-check docs links demo bench gpu-home gpu-prebuild gpu-bundle test-gpu bench-gpu dist screenshots pictures stories clean

help:  ## What there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(BIN)/python:
	@$(PYTHON) -c 'import sys, venv, ensurepip; assert sys.version_info >= (3, 11)' 2>/dev/null || \
	  { echo "Python 3.11 with its venv module is needed (Debian: apt-get install python3-venv)."; exit 1; }
	@echo "Making $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/worker.stamp: requirements.txt requirements-worker.txt | $(BIN)/python
	@echo "Installing the service, its compilers and libraries (about 1 GB the first time) …"
	@$(INSTALL) -r $(NEEDED)
	@$(BIN)/python -c 'import django, torch, onnxruntime, tvm, halide, jax' 2>/dev/null || \
	  { echo "The installation is not complete: remove $(VENV), and start again."; exit 1; }
	@touch $@

# As a job's machine has it: `import opatlas` works from any folder, and from this tree.
$(VENV)/opatlas.stamp: pyproject.toml $(VENV)/worker.stamp
	@$(PIP) --quiet --no-deps --no-build-isolation --editable .
	@echo "Compiling Opatlas itself …"
	@$(BIN)/python -m compileall -q catalog dashboard opatlas tuning  # else the first start does, for two seconds
	@touch $@

$(VENV)/dev.stamp: requirements-dev.txt requirements-cuda.txt $(VENV)/opatlas.stamp
	@echo "Installing what the tests need …"
	@$(INSTALL) -r requirements-dev.txt
	@$(BIN)/python -c 'import pytest, schemathesis, mypy' || exit 1
	@touch $@

run: $(VENV)/opatlas.stamp  ## The whole service on http://127.0.0.1:$PORT (8000), until Ctrl-C
	@exec $(BIN)/python manage.py serve --port $(PORT)

test: $(VENV)/dev.stamp  ## Every test: in parallel, then what measures, then what needs the cores to itself
	@$(BIN)/python -m tests

test-all: $(VENV)/dev.stamp  ## Nightly ones too, in parts of 40 minutes: those not yet green at this commit, or PART=name
	@$(BIN)/python -m tests.nightly $(PART)

test-changed: $(VENV)/dev.stamp  ## SINCE=rev: what a change since then (the last commit) can touch, as its imports say
	@$(BIN)/python -m tests.changed $(if $(filter command% environment%,$(origin SINCE)),--since $(SINCE))

test-steady: $(VENV)/dev.stamp  ## TIMES=10 SELECT=path: the parallel part so often in a row, under load, until a test fails
	@$(BIN)/python -m tests.steady $(or $(TIMES),10) $(SELECT)

test-times: $(VENV)/dev.stamp  ## How long each part of the last run took, and its slowest 30 tests
	@$(BIN)/python -m tests.times

test-fast: $(VENV)/dev.stamp  ## Only quick tests without services or a browser
	@$(BIN)/python -m pytest -p tests.forked --processes 2 -m "not slow and not services and not browser and not timing" -q

test-cheats: $(VENV)/dev.stamp  ## For who changed the judge: every cheat, every honest kernel, the simulated GPU; writes that they passed
	@$(BIN)/python -m tests.hostile.cheats

chaos: $(VENV)/dev.stamp  ## MINUTES=10 SEED=…: random faults on two nodes over PostgreSQL and Redis; what was lost or counted twice
	@$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

mutants: $(VENV)/dev.stamp  ## Would the tests notice? MUTANTS_S=600: the core changed here and there, ONLY=part of a path; SEED=1: a defect an area
	@$(BIN)/python -m tests.mutants $(if $(SEED),--seed $(SEED),$(ONLY))

# Of mypy, ruff and the import rules; a place that outlives this tree saves the next one most of their time.
LINT_CACHE ?= var/lint
export MYPY_CACHE_DIR ?= $(LINT_CACHE)/mypy
export RUFF_CACHE_DIR ?= $(LINT_CACHE)/ruff

lint: $(VENV)/dev.stamp  ## ruff, mypy, the import rules and the documents' links, side by side
	@mkdir -p $(LINT_CACHE)
	@$(MAKE) --no-print-directory --keep-going --jobs 3 --output-sync ruff types imports links

ruff: $(VENV)/dev.stamp
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	@$(BIN)/mypy

imports: $(VENV)/dev.stamp
	@$(BIN)/lint-imports --cache-dir $(LINT_CACHE)/imports

links: $(VENV)/dev.stamp
	@$(BIN)/python -m tests.docs.links

docs: $(VENV)/dev.stamp  ## The documentation as a site, in var/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet && echo "Written to var/site/index.html"

migrations-check: $(VENV)/dev.stamp  ## No model change without its migration
	@$(BIN)/python manage.py makemigrations --check --dry-run

demo: export OPATLAS_HOME := $(CURDIR)/var/demo/state
demo: $(VENV)/worker.stamp  ## MODEL=x.onnx|resnet50 BUDGET_S=300 KEEP=1: look up, explore, look up again
	@$(if $(KEEP),,rm -rf var/demo)
	@$(BIN)/python manage.py demo "$(or $(MODEL),resnet50)" --budget-s $(or $(BUDGET_S),300) --report var/demo/report.json

bench: $(VENV)/worker.stamp  ## ONLY=lookup|client|models|graph|pages|contest|reproduced|coverage|sandbox|service|streams|trials|wire: measured side by side, written to var/bench/NAME.json
	@$(BIN)/python -m bench $(ONLY)

dist: $(VENV)/dev.stamp  ## Wheel and sdist of opatlas, what a job installs, checked, in dist/
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist
	@$(BIN)/python -m twine check --strict dist/*

GPU_HOME ?= var/gpu/home

gpu-home:  ## The software of a machine with a GPU (Python 3.12, PyTorch for CUDA, Triton; 4.7 GB) in GPU_HOME, no GPU needed
	@$(PYTHON) -m tuning.bare.home $(GPU_HOME)

gpu-prebuild:  ## MOST=60 problems' kernels built in GPU_HOME for sm_90, into var/gpu/prebuilt, for the next bundle
	@$(GPU_HOME)/bin/python -m tuning.bare prebuild --most $(or $(MOST),60) --prebuilt var/gpu/prebuilt

gpu-bundle: $(VENV)/dev.stamp  ## One archive with all that a bare machine with a GPU needs: var/gpu/opatlas-gpu.tar.gz
	@$(BIN)/python -m tuning.bare bundle --home $(GPU_HOME)

# Where the bundle was unpacked its packages lie; elsewhere the tree's own environment has what is needed.
GPU_BIN := $(if $(wildcard site),var/gpu/venv/bin,$(BIN))
# What is installed before a slice is taken off it.
SINCE := $(shell date +%s)

var/gpu/venv/bin/python:
	@$(PYTHON) -m tuning.bare.unpacked

test-gpu: | $(GPU_BIN)/python  ## The tests about devices, those on a GPU and on simulated ones, without the service
	@. ./tuning/bare/environment.sh && $(GPU_BIN)/python -m tests.gpu -q

bench-gpu: | $(GPU_BIN)/python  ## A slice of the figures on a GPU, into var/gpu/state (OPATLAS_WORKLOADS: the open lists)
	@. ./tuning/bare/environment.sh && $(GPU_BIN)/python -m tuning.bare bench --since $(SINCE)

screenshots: $(VENV)/dev.stamp  ## Every page, light and dark, wide and narrow, into var/screenshots
	@$(BIN)/python -m tests.dashboard.screenshots

pictures: $(VENV)/dev.stamp  ## OPATLAS_HOME=… GIVE=sample:squeezenet BUDGET_S=900: docs/pages anew, from a copy of what was explored there
	@$(BIN)/python -m tests.dashboard.screenshots --home "$(OPATLAS_HOME)" --docs docs/pages --explore-s $(or $(BUDGET_S),0) $(if $(GIVE),--give $(GIVE))

stories: $(VENV)/dev.stamp  ## The three stories of docs/stories.md walked on real workers, and their pictures anew
	@$(BIN)/python -m tests.dashboard.stories

clean:  ## Remove the virtual environment and all state
	rm -rf $(VENV) var
