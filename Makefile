# Target names are stable. `make` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
SEEDS ?= 100
RUNS ?= 1
PACKAGES := holdfast-jobs holdfast-llm holdfast-simulator holdfast-rewrite holdfast-review

# Cached bytecode halves the start-up time of every command.
unexport PYTHONDONTWRITEBYTECODE
export UV_COMPILE_BYTECODE := 1
export UV_PYTHON_DOWNLOADS := never

# Three processes on two cores: some tests wait for leases to expire or for frozen processes.
PROCESSES := $(shell cores=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); \
	if [ $$cores -lt 3 ]; then echo 3; elif [ $$cores -gt 4 ]; then echo 4; else echo $$cores; fi)

.PHONY: help setup demo test test-both check docs definitions planted conformance mutants batch-faults outbox-faults eval sim bench bench-peers e2e schemathesis serve format lock clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9_-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Create the virtual environment and install all packages

$(STAMP): requirements-dev.lock pyproject.toml $(wildcard packages/*/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Holdfast needs Python 3.11 or newer; try make PYTHON=python3.12"; exit 1; }
	@echo "Set-up 1/4: create the virtual environment $(VENV)"
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "Python's venv module is missing; on Debian: apt-get install python3-venv"; exit 1; }
	@# uv installs in seconds. If it is not available, pip does the same more slowly.
	@# On a terminal, uv draws its own progress.
	@echo "Set-up 2/4: install uv"; \
	quiet=$$([ -t 2 ] || echo -q); \
	if $(BIN)/pip install -q --disable-pip-version-check uv 2>/dev/null; then \
		install="$(BIN)/uv pip install $$quiet --python $(BIN)/python"; \
	else \
		echo "uv is not available; pip is used instead"; \
		install="$(BIN)/pip install -q --disable-pip-version-check"; \
	fi; \
	echo "Set-up 3/4: install $$(grep -c '^[A-Za-z0-9]' requirements-dev.lock) dependencies (requirements-dev.lock)"; \
	$$install -r requirements-dev.lock || exit 1; \
	echo "Set-up 4/4: install $(PACKAGES)"; \
	$$install --no-deps --no-build-isolation $(PACKAGES:%=-e packages/%)
	@touch $@

demo: $(STAMP)  ## Run the demo on SQLite: no keys, no servers
	@$(BIN)/holdfast demo

test: $(STAMP)  ## Run the tests on SQLite and on a bundled PostgreSQL
	@$(BIN)/python -m pytest -q -n $(PROCESSES) --dist worksteal --alternate

test-both: $(STAMP)  ## Run every test on both databases, even where they share the SQL
	@$(BIN)/python -m pytest -q -n $(PROCESSES) --dist worksteal

check: $(STAMP)  ## Check formatting, lint, types and import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	@$(BIN)/python tools/conformance.py --check

docs: $(STAMP)  ## Build the documentation into site/; broken links fail the build
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --clean

definitions: $(STAMP)  ## Regenerate the PostgreSQL definitions that verify compares with, after a migration
	@$(BIN)/python tools/definitions.py

planted: $(STAMP)  ## Plant invariant violations one at a time and print which ones verify finds
	@HOLDFAST_PLANTED=1 $(BIN)/python -m pytest -q -n auto --maxprocesses 4 tests/operate/test_verify_planted.py

conformance: $(STAMP)  ## Map requirements to tests; writes docs/conformance.md
	@$(BIN)/python tools/conformance.py

mutants: $(STAMP)  ## Plant known bugs one at a time; a test must fail for each; ONLY="names"
	@$(BIN)/python tools/mutants.py $(ONLY)

bench: $(STAMP)  ## Compare Holdfast with the bare database on this machine; reports ratios
	@$(BIN)/python bench/throughput.py

bench-peers: $(STAMP)  ## Run Holdfast and other job systems in turns, and write bench/RESULTS.md; ROUNDS, JOBS, ONLY, BEFORE=revision
	@$(BIN)/python -m bench.peers turns $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(JOBS),--jobs $(JOBS)) \
		$(if $(ONLY),--only "$(ONLY)") $(if $(BEFORE),--before $(BEFORE))

batch-faults: $(STAMP)  ## Inject every provider fault and kill; count double billing, losses and leaks; RUNS=n
	@$(BIN)/python tools/batch_faults.py --seeds $(RUNS)

outbox-faults: $(STAMP)  ## Inject every channel fault, refusal and kill; count duplicate, lost and held deliveries; SEEDS=n
	@$(BIN)/python tools/outbox_faults.py --seeds $(SEEDS)

eval: $(STAMP)  ## Measure the lexicons and the validation of the rewrite; AGAINST=revision or folder, JUDGE=provider or a file
	@$(BIN)/python tools/rewrite_eval.py $(if $(AGAINST),--against $(AGAINST)) $(if $(JUDGE),--judge $(JUDGE))

sim: SEEDS = 1
sim: RUNS = $(SEEDS)
sim: batch-faults outbox-faults  ## Run both simulations of faults and kills, in minutes for each seed; SEEDS=n

e2e: $(STAMP)  ## Test the console in a headless Chromium on both databases; screenshots in build/e2e
	@command -v chromium >/dev/null || { echo "Installing Chromium"; apt-get update -qq && apt-get install -y -qq chromium >/dev/null; }
	@$(BIN)/python -c 'import playwright' 2>/dev/null || $(BIN)/pip install -q --disable-pip-version-check 'playwright>=1.50'
	@$(BIN)/python -m pytest -q -n 0 -p no:cacheprovider e2e

schemathesis: $(STAMP)  ## Send ten thousand generated requests to the HTTP API; EXAMPLES=n
	@HOLDFAST_EXAMPLES=$(or $(EXAMPLES),10000) $(BIN)/python -m pytest -q -n 0 tests/api/test_schema.py

serve: $(STAMP)  ## Serve the console and the HTTP API on the data of the demo, and print a link
	@test -e build/demo/demo.db || { rm -rf build/demo; $(BIN)/holdfast demo --plain --folder build/demo; }
	@$(BIN)/holdfast --app holdfast.demo.app:hf --db sqlite:///build/demo/demo.db serve --dev

format: $(STAMP)  ## Format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix-only .

lock: $(STAMP)  ## Resolve the dependencies again into requirements-dev.lock
	@$(BIN)/uv pip compile -q --group dev --all-extras $(PACKAGES:%=packages/%/pyproject.toml) \
		$(PACKAGES:%=--no-emit-package %) \
		--universal --python-version 3.11 --no-emit-index-url --no-header --no-annotate \
		-o requirements-dev.lock

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site *.egg-info
