# `make` lists the targets. Every target that needs packages calls setup first; a second setup changes nothing.
PYTHON ?= python3
VENV_PYTHON := .venv/bin/python
PYTEST_ARGS ?=
SUITE ?= suites/core.yaml

# What watches the whole machine (its memory, disk, users and processes) is tested with nothing beside it.
ALONE := $(patsubst %,tests/test_%.py,attacks browse execute_code isolation_probes leftovers sandbox \
  sandbox_neighbours sandbox_runs)

.DEFAULT_GOAL := help
.PHONY: help setup extras dev suite test check pytest lint types imports format lock docker-check docker-suite clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

define bootstrap
@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
  echo "setup: $(PYTHON) is not there: apt-get install python3 python3-venv" >&2; exit 2; }
@"$(PYTHON)" scripts/bootstrap.py
endef

setup: ## make .venv with pinned, hash-checked packages and unpack the embedded model
	$(bootstrap)

extras: ## setup, and the libraries of the toolsets web, pdf, browser and mcp:NAME
	$(bootstrap) --extras

dev: ## extras, and what tests, lint and types need
	$(bootstrap) --dev

# run_tests.py exits 1 when a case did not pass: a weak model's failures are results, so only worse ends the target.
suite: setup ## run the five-task suite (SUITE=file), leave traces/ and test_results.md
	@$(VENV_PYTHON) run_tests.py $(SUITE); code=$$?; [ $$code -eq 1 ] || exit $$code

test: dev ## lint, types, import rules and all tests (PYTEST_ARGS=...)
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory pytest

check: lint types imports

pytest: dev
	@$(VENV_PYTHON) -m pytest -n auto --dist loadfile $(addprefix --ignore=,$(ALONE)) $(PYTEST_ARGS)
	@$(VENV_PYTHON) -m pytest $(PYTEST_ARGS) $(ALONE)

lint: dev ## ruff: rules and format
	@$(VENV_PYTHON) -m ruff check .
	@$(VENV_PYTHON) -m ruff format --check .

types: dev ## mypy, strict
	@$(VENV_PYTHON) -m mypy

imports: dev ## import-linter: imports point one way
	@$(VENV_PYTHON) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'

format: dev ## rewrite the sources in ruff's format
	@$(VENV_PYTHON) -m ruff format .
	@$(VENV_PYTHON) -m ruff check --fix .

# The index that a machine happens to use is its own business: no lock file may name one.
PIP_COMPILE := CUSTOM_COMPILE_COMMAND="make lock" $(VENV_PYTHON) -m piptools compile --quiet --generate-hashes \
  --allow-unsafe --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host
EXTRAS := --extra web --extra pdf --extra browser --extra mcp
lock: dev ## compile the requirements files from pyproject.toml (UPGRADE=1: newest versions)
	@$(PIP_COMPILE) $(if $(UPGRADE),--upgrade) --output-file requirements.txt pyproject.toml
	@$(PIP_COMPILE) $(if $(UPGRADE),--upgrade) $(EXTRAS) --constraint requirements.txt \
	  --output-file requirements-extras.txt pyproject.toml
	@$(PIP_COMPILE) $(if $(UPGRADE),--upgrade) $(EXTRAS) --extra dev --constraint requirements-extras.txt \
	  --output-file requirements-dev.txt pyproject.toml

docker-check: dev ## build the image without Docker and run a task in it (root on Debian; see the script)
	@$(VENV_PYTHON) scripts/docker_check.py

# Shells know UID and do not export it; compose would fall back to 1000.
docker-suite: ## run the suite on Ollama with Docker Compose, as you (results in traces/)
	@UID=$$(id -u) GID=$$(id -g) docker compose up --build --exit-code-from agent agent

clean: ## remove caches
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build *.egg-info
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## remove caches, .venv and the unpacked model (traces stay)
	@rm -rf .venv models
