# `make check` is what CI runs (.ci/run), at your desk; with .venv if there is one, else with the active environment.
PY := $(if $(wildcard .venv/bin/python),$(CURDIR)/.venv/bin/python,python3)

.PHONY: check format lint types test kill bench mutants

check: lint types test

# Changes files; `lint` only looks.
format:
	"$(PY)" -m ruff format .
	"$(PY)" -m ruff check --fix .

lint:
	"$(PY)" -m ruff format --check .
	"$(PY)" -m ruff check .

# The installed package, from a folder with nothing in it: whatever the checkout's folder is called.
types:
	cd "$$(mktemp -d)" && "$(PY)" -P -m mypy -p covey --config-file "$(CURDIR)/pyproject.toml" --cache-dir .

# Import rules, documents and examples are tests too.
test:
	"$(PY)" -P -m pytest

# Real processes, really killed; part of `test`, with 200 seeds instead of 3 for the numbered work, and ten minutes of
# storm instead of one.
kill:
	COVEY_KILL_SEEDS=200 COVEY_KILL_STORM_S=600 "$(PY)" -P -m pytest -m kill

bench:
	"$(PY)" -P -m covey bench fanout

# Flips every decision of the strategy in a copy of the package; some test has to fail. Takes about ten minutes.
mutants:
	"$(PY)" -P tests/mutants/mutate.py supervisor/strategy.py tests/supervisor/test_strategy.py tests/supervisor/test_strategy_model.py
