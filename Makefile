# Start with `make quickstart` and `make test`. Each command creates the environment that it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# The cluster tests mostly wait. Each of these processes starts its own cluster.
CLUSTERS ?= 1

.PHONY: quickstart test lint types check check-fast check-cluster check-others clean

quickstart: $(INSTALLED)
	@# Exit code 4 means that some trials failed. The results of the other trials are still shown.
	$(BIN)/ablate run specs/quickstart.py --campaign campaigns/quickstart --workers 2; code=$$?; \
	if [ $$code -ne 0 ] && [ $$code -ne 4 ]; then exit $$code; fi; \
	$(BIN)/ablate table --campaign campaigns/quickstart && \
	$(BIN)/ablate report --campaign campaigns/quickstart && exit $$code

test: lint types check

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	@# enable when it passes: $(BIN)/python tests/language.py

types: $(INSTALLED)
	$(BIN)/mypy

# The cluster tests mostly wait, so they run next to the other tests, which use two processes.
check: $(INSTALLED)
	@$(MAKE) --no-print-directory --jobs=2 --keep-going check-others check-cluster

# A sample for use while you edit: the grid, laws of a few operators, the store and one trained trial.
FAST := tests/grid tests/variants/test_scores.py tests/variants/test_every_operator.py tests/test_golden.py \
	tests/store/test_layout.py tests/store/test_shards.py tests/store/test_store.py \
	tests/runners/test_run.py::test_a_second_run_does_nothing

check-fast: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses=2 --dist=worksteal -m "not slow and not browser" \
		-k "not test_it_keeps_the_law or margin-ssmax-score-ssa" $(FAST)

check-others: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses=2 --dist=worksteal --ignore=tests/cluster

check-cluster: $(INSTALLED)
	@log=$$(mktemp) && $(BIN)/python -m pytest tests/cluster --numprocesses=$(CLUSTERS) --dist=worksteal >$$log 2>&1; code=$$?; \
	printf '\ntests/cluster:\n'; cat $$log; rm $$log; exit $$code

clean:
	rm -rf $(VENV) campaigns dist

# Install torch first and alone, so that only this version range selects the build.
$(INSTALLED): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ablate needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet "torch>=2.11,<2.14"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@
