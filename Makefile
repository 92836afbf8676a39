# Everything runs in a virtual environment of the project's own; `make test` and `make demo` set it up first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help demo test lint bench docs clean
.DEFAULT_GOAL := help

help:            ## show what there is
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev --editable '.[all,testing]'
	@touch $@

demo: $(READY)   ## three workers, one job, a kill and a pause: who holds what, live (20 s)
	@$(BIN)/leasehold demo

test: lint       ## all checks and tests; installs the packages that these need
	@tests/install-packages
	$(BIN)/python -m pytest

lint: $(READY)   ## formatting, lint rules, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)  ## side by side with the raw floor and filelock
	$(BIN)/python -m bench

docs: $(READY)   ## write the pages that are made from the code
	$(BIN)/python docs/generate.py

clean:           ## remove what make made
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
