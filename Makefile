# `make check` is what CI runs, at your desk. It uses the interpreter of the active environment (or .venv).
PY := $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)

.PHONY: check format lint types test kill bench

check: lint types test

format:
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

lint:
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .

# On the installed package: the checkout's folder may have any name.
types:
	$(PY) -P -m mypy -p covey

test:
	$(PY) -P -m pytest
