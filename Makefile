# What a newcomer needs: Python 3.11 or later, and make. Everything else is set up by the first target that needs it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.connectx-installed
# Environments that lie over the first, .venv-NAME with tests/NAME/requirements.txt: only what differs is in them.
OVER_INSTALLED := .venv-databricks/.connectx-installed
SPARK41_INSTALLED := .venv-spark41/.connectx-installed
MATRIX_INSTALLED := .venv-spark42/.connectx-installed .venv-spark43/.connectx-installed
LOCK := requirements.lock
UV := $(BIN)/uv
# pyspark comes as source: without this its wheel, which only uv sees, is compressed for 20 s.
STORED := --config-settings-package pyspark:--build-option=--compression=stored
# Jars and class archives are kept per user, so this one always runs; when all is there it takes a quarter of a second.
PREPARED := $(BIN)/connectx setup
# A browser and a database: Debian's packages, if this user may install them.
SYSTEMS := $(BIN)/python -m tests.support.systems

MINUTES ?= 10
TYPESCRIPT := 5.9.3
TIERS := $(BIN)/python -m tests.support.tiers
# Records durations that tests/budget.json limits: `make test-all` fails on a tier or folder that takes 25 % longer.
BUDGET := $(BIN)/python -m tests.support.budget

.PHONY: help setup archives demo cluster quick test test-all systems budget browser databricks connect spark41 matrix pythons wheel release docs simulate lab check lock resolves types bench bench-peer soak azure clean

help: ## show the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## make .venv with all packages, fetch Kafka's jars, make Kafka start fast
	@$(PREPARED)

# Spark's class archive, which a user's Spark gets beside a later one. Tests start many.
archives: $(INSTALLED)
	@$(PREPARED) --archives

demo: setup ## run the main job: flights from CSV to PostgreSQL while workers are killed
	@$(BIN)/connectx demo

cluster: setup ## run flights through a Spark cluster into PostgreSQL and Delta while parts of it are killed
	@$(BIN)/python -m bench.spark_cluster

quick: $(INSTALLED) ## run the fast tests, without Java: the loop of daily work
	@$(TIERS) quick

test: $(INSTALLED) ## run the tests of everything in a release, with a real Kafka, Spark and PostgreSQL
	@$(SYSTEMS) mariadb
	@$(TIERS) test

test-all: systems $(OVER_INSTALLED) $(SPARK41_INSTALLED) ## run what CI runs: also a browser, other versions, Java workers, a soak
	@$(TIERS) test-all
	@$(BUDGET) check test-all

systems: $(INSTALLED) ## install what tests need from outside, a browser, MariaDB and Node, or print how
	@$(SYSTEMS) chromium mariadb node

budget: ## take the durations of the last runs as the budget
	@$(BUDGET) write

browser: $(OVER_INSTALLED) ## test the panel in a real JupyterLab, of either version, with Chromium
	@$(SYSTEMS) chromium
	@$(TIERS) test-all browser databricks-panel

databricks: $(OVER_INSTALLED) ## test widgets, forms, data and a tutorial with the versions of Databricks images
	@$(TIERS) test-all databricks

connect: $(INSTALLED) ## test clusters with Spark Connect alone and your own Kafka
	@$(TIERS) test-all connect

spark41: $(SPARK41_INSTALLED) ## test Spark, converters, a source and a sink with Spark 4.1
	@$(TIERS) test-all spark41

matrix: $(INSTALLED) $(MATRIX_INSTALLED) ## test with Spark 4.2 and 4.3 and pandas 3, and with brokers of Kafka 4.4
	@$(TIERS) matrix

pythons: $(INSTALLED) ## run the unit tests on the other Pythons, 3.11 to 3.13, that this machine has
	@$(BIN)/python -m tests.support.pythons

wheel: setup ## test the wheel outside the repository: a worker on the base alone, the README, the demo
	@$(TIERS) test-all wheel

simulate: $(INSTALLED) ## run simulated clusters with faults, SEEDS=200 of them
	@$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),200)

release: setup ## build a wheel and an sdist in dist/, test them and sign them off; `make test-all` comes first
	@$(BIN)/python -m tests.support.release

docs: $(INSTALLED) ## build the documentation into site/, with every warning an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lab: setup ## open JupyterLab on the notebooks
	@$(BIN)/jupyter lab --notebook-dir=notebooks

check: $(INSTALLED) ## lint, format, types and architecture
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/python -m pytest tests/unit/test_architecture.py

types: ## types of the panel's front end, by a pinned TypeScript that npx fetches once; needs Node
	@npx --yes --package=typescript@$(TYPESCRIPT) -- tsc -p widgets/jsconfig.json

bench: archives ## measure throughput, latency, failover and memory on this machine
	@$(BIN)/python -m bench

bench-peer: archives ## run Kafka Connect and connectx in turns, and print how they compare
	@$(BIN)/python -m bench peer cdc_peer avro_peer

soak: archives ## flows under chaos in both isolations for MINUTES=10, and a verdict; SEED=... repeats one
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

azure: $(INSTALLED) ## test sinks of tables in files on an emulator of Azure, which npx fetches once; needs Node
	@$(BIN)/python -m pytest tests/azure

clean: ## remove .venv and what tests and tools left here; the user's cache of jars stays
	@rm -rf $(VENV) .venv-* build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis test-artefacts
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

lock: $(INSTALLED) ## renew requirements.lock: the newest versions that pyproject.toml allows
	@$(UV) pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command 'make lock' --extra all --extra dev --no-emit-package connectx pyproject.toml -o $(LOCK)

resolves: $(INSTALLED) ## resolve all extras beside each Spark and pandas, and for other machines, at the package index
	@$(BIN)/python -m pytest tests/resolution

$(INSTALLED): pyproject.toml $(LOCK)
	@python=; \
	for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	  if command -v $$name >/dev/null && $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    python=$$name; break; \
	  fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "connectx needs Python 3.11 or later, and none of python3, python3.11 to python3.14 on PATH is one: install it and run make again." >&2; \
	  exit 1; \
	fi; \
	if [ ! -x $(BIN)/python ] && ! $$python -m venv $(VENV); then \
	  echo "$$python cannot make a virtual environment: install its venv package (python3-venv on Debian and Ubuntu) and run make again." >&2; \
	  rm -rf $(VENV); exit 1; \
	fi
	@echo "Installing packages into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(sed -n 's/^\(uv==[^ ]*\).*/\1/p' $(LOCK))"
	@if ! $(UV) pip install --python $(BIN)/python --no-deps --require-hashes $(STORED) -r $(LOCK); then \
	  echo "uv could not install them, for example because only pip knows your package index: pip does."; \
	  $(BIN)/python -m pip install --disable-pip-version-check --require-hashes -r $(LOCK); \
	fi
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

.venv-%/.connectx-installed: tests/%/requirements.txt $(INSTALLED)
	@rm -rf $(@D)
	@$(BIN)/python -m venv --without-pip $(@D)
	@own() { "$$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }; \
	echo "import site; site.addsitedir('$$(own $(BIN)/..)')" > "$$(own $(@D))/under.pth"
	@$(UV) pip install --quiet --python $(@D)/bin/python --no-deps $(STORED) -r $<
	@mkdir -p $(@D)/etc $(@D)/share/jupyter/labextensions
	@ln -s $(abspath $(VENV))/share/jupyter/lab $(@D)/share/jupyter/lab
	@ln -s $(abspath $(VENV))/etc/jupyter $(@D)/etc/jupyter
	@ln -sf $(abspath $(VENV))/share/jupyter/labextensions/anywidget $(@D)/share/jupyter/labextensions/anywidget
	@touch $@
