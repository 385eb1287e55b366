# Every target does its own set-up: `make test` works in an empty clone.
PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.dev
# Tests of the trainers need torch; override with TORCH=torch for a GPU build.
TORCH ?= torch==2.13.0

.PHONY: help test test-all lint types quickstart quickstart-short bench-agent bench-questions bench-train clean
help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(VENV)/bin/python:
	$(PY) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/.train: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install -q --disable-pip-version-check '$(TORCH)'
	$(BIN)/pip install -q --disable-pip-version-check -e '.[train]'
	@touch $@ $(VENV)/.base

$(STAMP): pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install -q --disable-pip-version-check '$(TORCH)'
	$(BIN)/pip install -q --disable-pip-version-check -e '.[dev,train]'
	@touch $@ $(VENV)/.base

lint: $(STAMP)  ## ruff: style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## strict type check
	$(BIN)/mypy

test: $(STAMP) lint types  ## lint, types and the default test suite
	$(BIN)/python -m pytest -m 'not slow'

test-all: $(STAMP) lint types  ## the slow tests as well
	$(BIN)/python -m pytest

quickstart: $(VENV)/.train  ## the whole recipe on the miniature encyclopedia, training included
	$(BIN)/osvl quickstart --out runs/quickstart --resume

quickstart-short: $(VENV)/.base  ## the same without training and without torch
	$(BIN)/osvl quickstart --out runs/quickstart-short --no-train --resume

bench-agent: $(STAMP)  ## rollout engine, dialect, scrubber, image search, OCR; SIZE=small
	$(BIN)/python benchmarks/bench_agent.py

bench-questions: $(STAMP)  ## yield, shortcuts, kills and speed of question building; SIZE=small
	$(BIN)/python benchmarks/bench_questions.py

bench-train: $(STAMP)  ## training: rollouts, speed next to TRL, share of the method, learning; PARTS="rollouts …"; SIZE=small
	$(BIN)/python benchmarks/bench_train.py $(PARTS)

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
