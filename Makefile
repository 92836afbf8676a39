# Everything runs in a virtual environment of the project's own; `make test` and `make demo` set it up first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PEERS  := $(VENV)/.peers
FUZZER := $(VENV)/.fuzzer
# The tests start thousands of processes: none of them should compile the library again.
unexport PYTHONDONTWRITEBYTECODE
SITE   := $(VENV)-site

.PHONY: help demo test test-all soak variants proof chaos sim mutants fuzz lint bench docs picture site clean
.DEFAULT_GOAL := help

help:            ## show what there is
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

NEEDED := $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..." >&2; exit 1; }

$(READY): pyproject.toml
	@$(NEEDED)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev --editable '.[all,testing]'
	@touch $@

demo:            ## three workers, one job, a kill and a pause: who holds what, live (20 s); installs nothing
	@$(NEEDED)
	@PYTHONPATH=src $(PYTHON) -m lessor demo $(ARGS)

test: lint       ## what every change has to pass: linters and tests; installs the packages that these need (7 min)
	@tests/install-packages
	@$(BIN)/python -m tests.run test $(ARGS)

test-all: lint   ## what a release has to pass: every case on every store and deployment, and the proofs in full (hours)
	@tests/install-packages
	@$(BIN)/python -m tests.run all $(ARGS)

soak: $(READY)   ## the tests beside busy loops on all processors, ROUNDS=10 times; goes on where it was stopped
	@tests/install-packages
	@$(BIN)/python -m tests.soak $(or $(ROUNDS),10) $(ARGS)

variants: $(READY) ## all cases on other deployments of the stores: Sentinel, Cluster, PgBouncer, three nodes, five
	@tests/install-packages
	@$(BIN)/python -m tests.run variants $(ARGS)

proof: $(READY)  ## the long proofs in full: fifty times as many examples and interleavings as in 'test'
	@tests/install-packages
	@$(BIN)/python -m tests.run proof $(ARGS)

chaos: $(READY)  ## elections and restarts by the hundred, large sessions, long queues; writes their tables (25 min; ROUNDS=0.1 for less)
	@tests/install-packages
	LESSOR_MEASURED=docs/benchmarks/patterns.json LESSOR_CHAOS=$(or $(ROUNDS),1) $(BIN)/python -m pytest -s -m chaos; \
	    failed=$$?; $(BIN)/python -m tests.measured; exit $$failed

sim: $(READY)    ## the cluster's protocol in 100,000 simulated worlds (an hour on two cores); ARGS='--seeds 5000' for less
	$(BIN)/lessor sim run --seeds 100000 --jobs 2 $(ARGS)

mutants: $(READY) ## looks anew for worlds that catch each wrong version of the protocol, for tests/sim/caught.py (half an hour)
	$(BIN)/python -m tests.sim.hunt $(ARGS)

$(FUZZER): $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group fuzz
	@touch $@

fuzz: $(FUZZER)  ## bytes that a node can't cope with, led by what they reach (2 min); ARGS=600 for ten
	$(BIN)/python -m tests.fuzz $(ARGS)

lint: $(READY)   ## formatting, lint rules, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(PEERS): $(READY)
	@tests/install-packages
	@$(BIN)/python -m bench.install
	@touch $@

bench: $(PEERS)  ## side by side with what people use today (15 min); ARGS='--only redis.handover' for a part
	$(BIN)/python -m bench $(ARGS)

docs: $(READY)   ## write the pages that are made from the code
	$(BIN)/python docs/generate.py

picture:         ## draw the README's picture, from a run of the demo
	@PYTHONPATH=src $(PYTHON) -m lessor demo --draw docs/pictures/demo.svg

$(SITE): pyproject.toml
	@$(NEEDED)
	@$(PYTHON) -m venv $(SITE)
	@$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	@$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --group site
	@touch $@

site: $(SITE)    ## the documentation as a site, in the folder 'site'; fails on a warning or a link that leads nowhere
	@$(SITE)/bin/python docs/site.py

clean:           ## remove what make made
	rm -rf $(VENV) $(SITE) site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .soak
