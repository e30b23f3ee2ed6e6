# Start with `make quickstart` and `make test`. Each command creates the environment that it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# Tests start hundreds of processes; without compiled modules each needs 0.7 s more.
export PYTHONDONTWRITEBYTECODE :=

# Cluster tests mostly wait. Each of these processes starts a SLURM cluster of its own.
CLUSTERS ?= 3

# Tests wait for the disk: 14 GB are written. They use memory instead if 12 GB are free and it runs programs.
SCRATCH := $(shell [ "$$(awk '/MemAvailable/ {print $$2}' /proc/meminfo 2>/dev/null)" -gt 16000000 ] 2>/dev/null && \
	[ "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 12000000 ] 2>/dev/null && \
	! findmnt --noheadings --output OPTIONS /dev/shm | grep -q noexec && echo /dev/shm)
IN_SCRATCH = scratch=$$(mktemp -d $(or $(SCRATCH),/tmp)/ablate-XXXX) && trap 'rm -rf "$$scratch"' EXIT && TMPDIR=$$scratch

# Places whose language is checked.
PLAIN := README.md CHANGELOG.md CONTRIBUTING.md src grid variants runners training store dashboards papers specs benchmarks tests \
	docs/generate docs/api $(wildcard docs/*.md)

.PHONY: quickstart test lint types check check-fast check-cluster check-others golden docs count clean

quickstart: $(INSTALLED)
	@# Exit code 4 means that some trials failed. The results of the other trials are still shown.
	$(BIN)/ablate run specs/quickstart.py --campaign campaigns/quickstart --workers 2; code=$$?; \
	if [ $$code -ne 0 ] && [ $$code -ne 4 ]; then exit $$code; fi; \
	$(BIN)/ablate table --campaign campaigns/quickstart && \
	$(BIN)/ablate report --campaign campaigns/quickstart && exit $$code

test: lint types docs check

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/shellcheck runners/backends/slurm/submit/worker.sh
	$(BIN)/python tests/language.py $(PLAIN)

types: $(INSTALLED)
	$(BIN)/mypy
	$(BIN)/mypy benchmarks

# The cluster tests run beside the others: both together take as long as the longer. In CI they run one after the other.
# What failed and then passed alone is listed at the end.
check: $(INSTALLED)
	@export UNSTABLE=$$(mktemp); $(MAKE) --no-print-directory --jobs=$(if $(CI),1,2) --keep-going check-others check-cluster; \
	code=$$?; [ ! -s $$UNSTABLE ] || { printf '\nunstable:\n'; cat $$UNSTABLE; }; rm $$UNSTABLE; exit $$code

# Under a minute: grids, laws on a sample of operators, the store, one trained trial.
check-fast: $(INSTALLED)
	@$(IN_SCRATCH) $(BIN)/python -m pytest --numprocesses=2 --dist=worksteal -m "not browser and not slow" \
		tests/grid tests/test_golden.py tests/test_ablate.py tests/test_code_versions.py \
		tests/variants/test_scores.py tests/variants/test_paths.py tests/store/test_store.py tests/store/test_shards.py \
		tests/store/test_views.py tests/store/test_stored_campaigns.py tests/runners/test_training.py

check-others: $(INSTALLED)
	@$(IN_SCRATCH) $(BIN)/python tests/rerun_failed.py --numprocesses=3 --dist=worksteal --ignore=tests/cluster

check-cluster: $(INSTALLED)
	@log=$$(mktemp) && $(IN_SCRATCH) \
	$(BIN)/python tests/rerun_failed.py --numprocesses=$(CLUSTERS) --dist=worksteal tests/cluster >$$log 2>&1; code=$$?; \
	printf '\ntests/cluster:\n'; cat $$log; rm $$log; exit $$code

# After an edit of code that trains: equal bits to the parent commit, or the name of the version to raise.
golden: $(INSTALLED)
	PYTHONPATH=src:tests $(BIN)/python tests/golden_bits.py $(PARENT)
	PYTHONPATH=src:tests $(BIN)/python tests/golden_trials.py

docs: $(INSTALLED)
	mkdir -p build && rm -rf build/docs && cp -r docs build/docs
	$(BIN)/python docs/generate/all.py --site build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# Lines and files of .py and .pyi: of the package, and of the tests.
count:
	@for of in "src grid variants runners training store dashboards papers" tests; do git ls-files $$of | grep -E '\.pyi?$$' | \
	xargs wc -l | awk -v of="$$of" 'END {print of ": " $$1 " lines, " NR - 1 " files"}'; done

clean:
	rm -rf $(VENV) campaigns dist site

# Install torch first and alone, so that only this version range selects the build.
$(INSTALLED): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ablate needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet "torch>=2.11,<2.14"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@
