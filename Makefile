# ---- the demo: everything that is missing is made or brought, then the hub starts; a second time it takes seconds
#
#   make demo                         a JupyterHub on 127.0.0.1 whose servers can be paused; prints one URL
#   make demo ARGS="--port 8123"      arguments for `gke-workspaces demo` (gke-workspaces demo --help)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKING := -m gke_workspaces_spawner.cli.working
LABEXTENSION := jupyter_pause_ext/labextension
INSTALLED_LABEXTENSION := $(VENV)/share/jupyter/labextensions/@gke-workspaces/jupyterlab-pause
SERVER_CONFIG := jupyter_pause_ext/jupyter-config/jupyter_server_config.d/jupyter_pause_ext.json
TYPESCRIPT := $(shell find labextension/src labextension/style -type f 2>/dev/null) package.json package-lock.json tsconfig.json

.PHONY: demo
demo: $(VENV)/.installed $(INSTALLED_LABEXTENSION)/package.json
	@exec $(BIN)/gke-workspaces demo $(ARGS)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed: install one, and name it with make demo PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv module is missing: run 'apt-get install python3-venv'." >&2; exit 1; }
	@$(PYTHON) $(WORKING) "making $(VENV)" $(PYTHON) -m venv $(VENV)

$(VENV)/.installed: setup.cfg pyproject.toml | $(BIN)/python
	@$(BIN)/python $(WORKING) "installing the package and what it needs into $(VENV)" \
		$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --editable '.[local]'
	@touch $@

node_modules/.package-lock.json: package.json package-lock.json | $(VENV)/.installed
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python $(WORKING) "fetching what the labextension is built with" npm ci --no-audit --no-fund
	@touch $@

$(LABEXTENSION)/package.json: $(TYPESCRIPT) node_modules/.package-lock.json | $(VENV)/.installed
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python $(WORKING) "building the labextension" npm run build:prod
	@touch $@

# An editable install leaves out the files that a wheel puts where Jupyter looks.
$(INSTALLED_LABEXTENSION)/package.json: $(LABEXTENSION)/package.json $(SERVER_CONFIG) | $(VENV)/.installed
	@mkdir -p $(dir $(INSTALLED_LABEXTENSION)) $(VENV)/etc/jupyter/jupyter_server_config.d
	@rm -rf $(INSTALLED_LABEXTENSION)
	@cp -R $(LABEXTENSION) $(INSTALLED_LABEXTENSION)
	@cp $(SERVER_CONFIG) $(VENV)/etc/jupyter/jupyter_server_config.d/
	@touch $@

.PHONY: labextension
labextension: $(INSTALLED_LABEXTENSION)/package.json

# ---- end of the demo

# ---- checks and measurements
#
#   make test     everything that CI runs, from nothing (.ci/run); needs root
#   make lint     the checks that need no running server
#   make bench    the measurements of tests/bench: long, needs root and a quiet machine
#   make lock     requirements/: the versions that CI installs

.PHONY: test lint bench matrix lock

test:
	@exec .ci/run

$(VENV)/.checks: setup.cfg requirements/ci.txt $(VENV)/.installed
	@echo "  installing what the checks need into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements/ci.txt --editable '.[hub,local,test]'
	@touch $@

lint: $(VENV)/.checks node_modules/.package-lock.json
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check
	PATH="$(CURDIR)/$(BIN):$$PATH" npm run --silent lint:check

bench: $(VENV)/.checks $(LABEXTENSION)/package.json
	@$(BIN)/python -m gke_workspaces_spawner.cli.bring
	$(BIN)/python -m pytest tests/bench --timeout=0 $(ARGS)

matrix: $(VENV)/.checks $(LABEXTENSION)/package.json
	@$(BIN)/python -m gke_workspaces_spawner.cli.bring
	@$(BIN)/python -m tests.emulator.binaries
	GKE_WORKSPACES_MATRIX=all GKE_WORKSPACES_OUTCOMES=docs/outcomes.md $(BIN)/python -m pytest tests/kube/test_matrix.py $(ARGS)

lock:
	@$(PYTHON) tools/lock.py
