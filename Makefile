# The whole project in two commands: `make quickstart` and `make test`. Each makes the environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: quickstart test lint types check check-cluster check-others docs clean

quickstart: $(INSTALLED)
	@# 4: some trials failed; the others still have results to show, and the command ends with 4 all the same
	$(BIN)/ablate run specs/quickstart.py --campaign campaigns/quickstart --workers 2; code=$$?; \
	if [ $$code -ne 0 ] && [ $$code -ne 4 ]; then exit $$code; fi; \
	$(BIN)/ablate table --campaign campaigns/quickstart && \
	$(BIN)/ablate report --campaign campaigns/quickstart && exit $$code

test: lint types docs check

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/shellcheck runners/slurm/submit/worker.sh

types: $(INSTALLED)
	$(BIN)/mypy

# Tests on the cluster wait while the others compute, in two processes: beside each other they take as long as the longer.
check: $(INSTALLED)
	@$(MAKE) --no-print-directory --jobs=2 --keep-going check-others check-cluster

check-others: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses=2 --dist=worksteal --ignore=tests/cluster

check-cluster: $(INSTALLED)
	@log=$$(mktemp) && $(BIN)/python -m pytest tests/cluster >$$log 2>&1; code=$$?; \
	printf '\ntests/cluster:\n'; cat $$log; rm $$log; exit $$code

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

clean:
	rm -rf $(VENV) campaigns dist site

# torch comes first and alone, so that its version range and not a dependency's decides the build
$(INSTALLED): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ablate needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet "torch>=2.11,<2.14"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@
