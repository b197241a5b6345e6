# Needs Python 3.11 or newer and make; everything else goes into .venv from the lock.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ROOMS  := flows reports tasks adapters templates testing
# `make test OMP_NUM_THREADS=1 JOBS=2` runs two files at a time, each on one thread.
JOBS   ?= 0
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

.PHONY: install demo test test-all test-device test-engines check format docs lock clean

install: $(VENV)/.installed

# The links give type checkers, import-linter and editors the package layout (`day0.*`) that the
# build backend gives the interpreter.
$(VENV)/.installed: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Day0 needs Python 3.11 or newer, this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11 install" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	rm -rf build/links && mkdir -p build/links/day0
	for room in $(ROOMS); do ln -s ../../../$$room build/links/day0/$$room; done
	ln -s ../../adapters/worker_side build/links/day0_worker
	$(BIN)/python -m compileall -q $(ROOMS)
	touch $@

demo: install
	$(BIN)/python -m day0.flows.demo

test: install
	$(PYTEST) -m "not slow and not device and not engine"

test-all: install
	$(PYTEST) -m "slow and not device and not engine"

test-device: install
	$(BIN)/python -m pytest -m device

# Against engines and harnesses that are not in the lock: the first is compiled, which takes minutes.
test-engines: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "llama-cpp-python[server]>=0.3.16,<0.4" "lm-eval[hf]>=0.4.13,<0.5"
	$(BIN)/python -m pytest -m engine

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p day0 -p day0_worker
	$(BIN)/mypy tests benchmarks
	PYTHONPATH=build/links $(BIN)/lint-imports
	$(BIN)/python -m day0.reports.catalogue_page --check

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: install
	$(BIN)/python -m day0.reports.catalogue_page

# Pins what is installed now; torch without its local label, so that any build of that version will do.
lock: install
	$(BIN)/python -m pip freeze --all --exclude-editable | grep -v -e '^pip==' -e '^#' | sed 's/^\(torch==[0-9.]*\)+.*/\1/' > requirements.lock

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
