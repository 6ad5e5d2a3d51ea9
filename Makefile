# What a person types here: `make demo`, `make test`. Each makes the virtual environment first, and again only when the lock changed.

PYTHON ?=
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
FAULT  ?=
PROGRAMS ?=
# image.lock and build.lock are what the container image is made with, at the versions that the tests run with.
LOCKING := --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url

.DEFAULT_GOAL := help
.PHONY: help venv demo lab test kube-assets test-clusters test-gpu chaos lint format lock bench clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | while IFS="$$(printf '\t')" read -r name text; do printf '  make %-13s %s\n' "$$name" "$$text"; done

venv: $(STAMP) ## make .venv with everything (PYTHON=python3.12 picks the interpreter)

$(STAMP): requirements/dev.lock pyproject.toml .ci/venv
	@PYTHON="$(PYTHON)" .ci/venv $(VENV)
	@touch $@

demo: $(STAMP) ## three faults on a lab cluster, healed before your eyes; FAULT=79 (or 64, 94) for one
	@$(BIN)/hotspare demo $(FAULT)

lab: $(STAMP) ## the lab cluster, left up to play with
	@$(BIN)/hotspare lab up

test: $(STAMP) ## all tests
	@$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

kube-assets: $(STAMP) ## real Kubernetes, job controllers, helm and tctl, built once into a cache folder (Go; 20 minutes at first)
	@PYTHONPATH=. $(BIN)/python -m infra.lab.kube.build $(PROGRAMS)

test-clusters: kube-assets ## tests against a real Kubernetes, Slurm and MPI; what is missing fails. ARGS=FILE for some
	@.ci/cluster-packages
	@HOTSPARE_REAL_CLUSTERS=1 $(BIN)/python -m pytest -n 2 --dist loadfile $(if $(findstring tests/,$(ARGS)),,tests/clusters) $(ARGS)

test-gpu: $(STAMP) ## on a machine with an NVIDIA GPU: the probe against nvidia-smi
	@$(BIN)/python -m pytest tests/gpu -o addopts="--import-mode=importlib --strict-markers" --capture=no $(ARGS)

chaos: $(STAMP) ## every failure at every step of every story, into docs/kill-anywhere.md, then the stories in the lab under kills
	@PYTHONPATH=. $(BIN)/python -m tests.chaos.matrix --write docs/kill-anywhere.md $(ARGS)
	@$(BIN)/python -m pytest tests/chaos -o addopts="--import-mode=importlib --strict-markers" --capture=no

lint: $(STAMP) ## style, types, layers, and checks/ against Python 3.9
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vermin --quiet --no-tips --target=3.9- --violations checks

format: $(STAMP) ## write the style that lint asks for
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## renew the files in requirements/ from pyproject.toml (needs uv on the PATH)
	uv pip compile $(LOCKING) --extra lab --extra kubernetes --extra plots --group dev pyproject.toml --output-file requirements/dev.lock
	uv pip compile $(LOCKING) --no-annotate --constraint requirements/dev.lock --extra kubernetes pyproject.toml --output-file requirements/image.lock
	echo hatchling | uv pip compile $(LOCKING) --no-annotate --constraint requirements/dev.lock - --output-file requirements/build.lock

bench: $(STAMP) ## measure: seconds from a fault line to quarantine, history per incident, ...
	@$(BIN)/python -m pytest $(if $(findstring tests/,$(ARGS)),,tests/bench) -o addopts="--import-mode=importlib --strict-markers" --capture=no $(ARGS)

clean: ## remove what the tools made, .venv too
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
