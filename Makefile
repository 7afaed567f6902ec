# Each target makes its own virtual environment in .venv on a machine that has only python3 (3.11 or newer).
#   make demo    exact speculative decoding of the embedded model: plain, fixed and adaptive; DEMO_FLAGS=--quick for a short run
#   make test    every test but the slow ones; make test-all runs those too
#   make check   formatting, lint, types and layers
#   make bench   timings of single functions, the demonstration, then paired ratios as one JSON line; BENCH_FLAGS=--quick
#   make docs    checked guide (docs/) and API pages (build/docs)
#   make clean   removes .venv and everything built
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

DEMO_FLAGS ?=
BENCH_FLAGS ?=
PYTEST_FLAGS ?=

# One thread: on small shared machines two threads stall each other, and timings of one thread can be compared.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check bench docs clean

help:
	@sed -n 's/^#   //p' Makefile

# pip comes first: only newer ones go on with a broken download. Then torch, by its exact version: asked for as somebody's
# dependency it could arrive as another build.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("forerun needs Python 3.11 or newer; set PYTHON=...") if sys.version_info < (3, 11) else None'
	@echo 'Installing forerun and its pinned dependencies into $(VENV): once, a few minutes.'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/forerun demo $(DEMO_FLAGS)

test: $(READY)
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_FLAGS)

test-all: $(READY)
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

check: $(READY)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Timings of single functions, then the paired ratios; the last line is one JSON object.
bench: $(READY)
	$(BIN)/python -m pytest --benchmark-enable --benchmark-only $(PYTEST_FLAGS)
	mkdir -p build
	$(BIN)/forerun demo $(DEMO_FLAGS) --page build/bench.html
	$(BIN)/python -m benchmarks $(BENCH_FLAGS)

docs: $(READY)
	$(BIN)/python -m pytest docs tests/docs $(PYTEST_FLAGS)
	$(BIN)/pdoc --docformat google --output-directory build/docs forerun
	@echo 'Guide: docs/README.md. API pages: build/docs/index.html'

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
