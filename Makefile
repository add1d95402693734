# A newcomer's commands: `make demo`, `make test`. Each sets up .venv from the lock once, then runs.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Installed by version: its builds for CPU and for GPU have other hashes on every index. All else is in the lock.
TORCH := torch==2.13.0
# Real data sets are looked for here when the folder is present; otherwise in the user's data directory.
SHARED_DATA := $(wildcard ../shared/data)
export UNSKEW_DATA ?= $(if $(SHARED_DATA),$(abspath $(SHARED_DATA)))
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: help setup demo test test-quick test-fast test-slow test-spark browser lint format docs bench quality campaign results wheel lock clean

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(READY)  ## create .venv from requirements.lock

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)

demo: $(READY)  ## the main job, from simulated clicks to a comparison
	$(BIN)/unskew demo

test: lint test-fast  ## lint, then every test that is not slow

test-fast: $(READY) browser
	$(BIN)/python -m pytest -m "not slow" -n 2

browser:  # reports are opened in a real one, where it can be had
	@command -v chromium > /dev/null || { [ "$$(id -u)" = 0 ] && \
	  echo "no chromium: installing it with apt-get, for the tests that open reports" >&2 && \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } > /dev/null 2>&1; } || \
	  echo "no chromium, and none can be installed: the browser test will be skipped"

test-quick: $(READY)  ## the everyday tests: those of `make test` that are neither slow nor long
	$(BIN)/python -m pytest -m "not slow and not long" -n 2

test-slow: $(READY)  ## the slow science
	$(BIN)/python -m pytest -m slow

.venv-spark/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-spark
	.venv-spark/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	.venv-spark/bin/python -m pip install --quiet --disable-pip-version-check pytest pytest-timeout 'moto[server]' \
	  --editable '.[spark,onnx]'
	@touch .venv-spark/.ready

test-spark: .venv-spark/.ready  ## two Spark executors and an S3 server as one machine; own .venv-spark, Java 17
	.venv-spark/bin/python -m pytest tests/ingestion/test_spark.py tests/ingestion/test_spark_mess.py \
	  tests/serving/test_spark_rank.py tests/data/test_object_storage.py

lint: $(READY)  ## ruff, mypy, import-linter, typos
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/typos

format: $(READY)  ## let ruff arrange the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## the documentation as a site, in site/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-docs.txt
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(READY)  ## ratios measured on this machine, in one run
	$(BIN)/python benchmarks/run.py

quality: $(READY)  ## the defaults on eight logs, against the last accepted table; resumable
	$(BIN)/python benchmarks/quality.py

campaign: $(READY)  ## every command and format in trouble; a table of what came of it
	$(BIN)/python benchmarks/campaign.py

results: $(READY)  ## the pages of results from docs/results/runs.jsonl
	$(BIN)/python benchmarks/results_pages.py

wheel: $(READY)  ## wheel and source archive, in dist/
	rm -rf dist
	$(BIN)/hatchling build

lock: $(READY)  ## requirements.lock and THIRD_PARTY_NOTICES.txt, from what is installed
	$(BIN)/python tools/lock.py
	$(BIN)/python tools/licences.py

clean:  ## remove .venv
	rm -rf .venv
