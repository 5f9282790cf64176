# Penstock. `make help` lists what can be made. Needs Python >= 3.11, gcc and make; the rest is
# installed into .venv, pinned by constraints.txt and by the hashes in requirements/.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src -name '*.pyx' -o -name '*.pxd')

# Two at a time: pip mostly waits and unpacks while the compiler computes.
MAKEFLAGS += --jobs=2

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long again check static lint types layers format reference bench bench-jetstream bench-probes bench-stalls bench-storage bench-folds fuzz fuzz-operations asan faults lock sbom wheel clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/compiled $(VENV)/installed $(VENV)/bytecode ## create .venv with the penstock command and everything for development

# Every step says when it begins, that it still runs, and how long it took. What it prints itself is
# shown only if it fails. The usual times are those of two cores.
STEP := $(PYTHON) tools/step.py
# Nothing is installed whose hash is not in a lock. An editable package has none, so it comes last
# and alone.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(VENV)/tools: requirements/build.lock
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python >= 3.11 is needed"'
	@$(STEP) --usually 15 "make $(VENV) with Cython" -- sh -ec '$(PYTHON) -m venv $(VENV); \
		$(PIP) --require-hashes --upgrade -r requirements/build.lock'
	@touch $@

$(VENV)/compiled: $(VENV)/tools setup.py $(SOURCES)
	@$(STEP) --usually 120 "compile the data plane" -- \
		$(BIN)/python setup.py --quiet build_ext --inplace --parallel 2
	@touch $@

$(VENV)/installed: requirements/dev.lock pyproject.toml | $(VENV)/tools
	@$(STEP) --usually 90 "install the pinned packages" -- sh -ec '\
		$(PIP) --require-hashes -r requirements/dev.lock; \
		PENSTOCK_COMPILED_IN_PLACE=1 $(PIP) --no-deps --no-build-isolation --editable .'
	@echo "setup: the command is $(BIN)/penstock; for this shell: . $(BIN)/activate"
	@touch $@

# As an installed wheel has it: where PYTHONDONTWRITEBYTECODE is set, Python would otherwise compile
# every module at every start of a server.
$(VENV)/bytecode: $(shell find src -name '*.py') | $(VENV)/tools
	@$(BIN)/python -m compileall -q src
	@touch $@

demo: setup ## a server, a change feed, folds that follow it, Spark beside them; out/demo.svg
	$(BIN)/python -m examples.demo

# More than two cores' worth, because many tests wait for servers and Sparks they started. The order
# of the groups is that of tests/conftest.py: what takes longest begins first.
WORKERS ?= 6
# Otherwise every worker of every run compiles all tests: 13 s of CPU time for each. One process does
# so before them, beside the static checks.
TEST_BYTECODE := $(VENV)/test-bytecode
KEEPING_BYTECODE := env -u PYTHONDONTWRITEBYTECODE
PYTEST := $(KEEPING_BYTECODE) $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup \
	--no-loadscope-reorder
SPARK_CLASSES := build/spark-classes.jsa
FAILED := .pytest_cache/v/cache/lastfailed
# By another name than MAKE, for which `make -n test` would really run the tests.
AGAIN := $(MAKE) --no-print-directory again
# Failed tests run again only where CI=true. Elsewhere a failure is a failure.
test: static $(SPARK_CLASSES) $(TEST_BYTECODE) ## everything that must pass for a change: checks and tests, in WORKERS processes
	@rm -f $(FAILED)
	$(PYTEST) -m 'not long' --cpu 20 || { [ $$? -eq 1 ] && [ "$(CI)" = true ] && $(AGAIN); }

# One test after the other, without the load of the others. A test that passes now is flaky: it is
# listed, and needs a repair. More failures than this are no flakiness.
FLAKY_MAX := 10
again:
	@$(BIN)/python -c 'import json, sys; failed = json.load(open("$(FAILED)")); \
		len(failed) <= $(FLAKY_MAX) or sys.exit(f"{len(failed)} failed: too many to be flaky")'
	@printf '\n\033[1mFailed tests run again, one after the other. Those that pass now are flaky:\033[0m\n'
	@$(BIN)/python -c 'import json; print(*json.load(open("$(FAILED)")), sep="\n")'
	$(BIN)/python -m pytest -q -rA --last-failed --last-failed-no-failures none

test-long: setup $(SPARK_CLASSES) $(TEST_BYTECODE) ## tests marked long (tests/long.toml lists them), faults, every Spark; hours
	$(PYTEST) -m long
	$(MAKE) --no-print-directory faults spark-matrix

$(TEST_BYTECODE): $(shell find tests -name '*.py') | setup
	@$(STEP) --usually 20 "compile the tests" -- \
		$(KEEPING_BYTECODE) $(BIN)/python -m pytest -q -p no:xdist --collect-only
	@touch $@

# With it the tests need half the CPU time for each Spark they start. They do without as well.
$(SPARK_CLASSES): tools/spark_classes.py constraints.txt | setup
	-$(BIN)/python $< $@ > $(@:.jsa=.log) 2>&1

static: lint types layers ## format, lint, types and import layers

# Tests that wait for nothing need no more workers than cores; each worker collects all of them.
CHECK_WORKERS ?= 2
check: static $(TEST_BYTECODE) ## static checks and the tests that open no socket: under two minutes
	$(PYTEST) -n $(CHECK_WORKERS) -m 'not long and not sockets' tests/unit tests/property tests/house

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports

format: setup ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reference: setup ## write docs/reference from the declarations in the code
	$(BIN)/python tools/reference.py
	$(BIN)/python tools/api_reference.py
	$(BIN)/python tools/cli_reference.py
	$(BIN)/python tools/spark_reference.py

spark-matrix: setup ## tests that every Spark must pass, with 4.0, 4.1 and 4.2
	$(BIN)/python tools/spark_matrix.py

bench: setup ## compare with the reference server; writes out/bench.json and out/bench.svg
	mkdir -p out
	$(BIN)/penstock bench --compare --json out/bench.json --chart out/bench.svg

bench-jetstream: setup ## streams and buckets beside the reference; out/jetstream.json, jetstream.svg
	mkdir -p out
	$(BIN)/penstock bench --compare --jetstream --json out/jetstream.json --chart out/jetstream.svg

bench-probes: setup ## 10,000 idle connections, 1,000,000 subscriptions, a stalled subscriber
	mkdir -p out
	$(BIN)/penstock bench --compare --idle-connections 10000 --json out/probe-1-idle.json
	$(BIN)/penstock bench --compare --subscriptions 1000000 --json out/probe-2-subscriptions.json
	$(BIN)/penstock bench --compare --stalled-subscriber --json out/probe-3-stalled.json

bench-stalls: setup ## the worst wait of an uninvolved client during heavy operations; out/stalls.json
	$(BIN)/python -m benchmarks.stalls --rounds 3 --json out/stalls.json --chart out/stalls.svg

bench-storage: setup ## the file store beside SQLite, LMDB, RocksDB, and as it grows; out/storage.json
	$(BIN)/python -m benchmarks.storage --json out/storage.json

bench-folds: setup ## folds of a million keys on ours and the reference; out/folds.json
	$(BIN)/python -m benchmarks.folds_live --json out/folds.json

fuzz: setup ## throw random bytes at a live server for a minute
	$(BIN)/python -m tests.fuzz --seconds 60

OPERATIONS ?= 1000000
SEED ?= 0
fuzz-operations: setup ## random JetStream operations with restarts; OPERATIONS=100000 SEED=1 for others
	$(BIN)/python -m tests.fuzz.operations --operations $(OPERATIONS) --seed $(SEED)

# What the data plane is made of, and what clients can reach. Tests that measure memory are left out:
# a sanitizer keeps freed memory for a while, to recognise a use of it.
SANITIZED_TESTS := $(addprefix tests/unit/,wire subjects records store bulk fold \
	broker jetstream) tests/property tests/fuzz
SANITIZED_OPERATIONS ?= 20000
asan: setup ## tests and fuzzers with address and undefined-behaviour sanitizers
	$(BIN)/python tools/sanitized.py build
	$(BIN)/python tools/sanitized.py run python -m pytest -q -n 2 --capture=sys \
		-m 'not resident' $(SANITIZED_TESTS)
	$(BIN)/python -m tests.fuzz.operations --sanitized --operations $(SANITIZED_OPERATIONS)

TIMES ?= 1
# Every bit and every length of an append log; `make test` tries a sample.
DAMAGED_FILES := tests/unit/fold/test_damaged_files.py
faults: setup $(SPARK_CLASSES) ## power cuts, failing disks, damage, kill -9, for an hour; TIMES=8 for a night
	PENSTOCK_FAULT_TIMES=$(TIMES) $(BIN)/python -m pytest -q tests/faults $(DAMAGED_FILES)

# Its packages are of no use to the server, so they are not installed beside it, nor in the SBOM.
TOOLS := build/tools
$(TOOLS)/installed: requirements/tools.lock
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@

lock: $(TOOLS)/installed ## write requirements/*.lock from constraints.txt: all hashes of all pinned versions
	$(TOOLS)/bin/python tools/lock.py

sbom: setup $(TOOLS)/installed ## list everything that is installed, as CycloneDX: out/sbom.cdx.json
	$(BIN)/python tools/sbom.py $(TOOLS)/bin/cyclonedx-py out/sbom.cdx.json

wheel: setup ## a source archive, a wheel from it, and both tried in an empty environment
	rm -rf dist
	PENSTOCK_COMPILED_IN_PLACE=1 $(BIN)/python setup.py --quiet sdist --dist-dir dist
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist dist/penstock-*.tar.gz
	$(PYTHON) -m venv --clear build/empty
	build/empty/bin/pip install --quiet --disable-pip-version-check dist/penstock-*.whl
	cd build && empty/bin/penstock version && empty/bin/python -c 'import penstock; \
		s = penstock.ThreadedServer(); s.start(); print("serves at", s.url); s.stop()'

clean: ## remove everything that was made
	rm -rf $(VENV) build dist out src/*.egg-info
	find src -name '*.so' -delete -o -name '*.c' -delete
