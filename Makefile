# Everything below works in a fresh clone with Python 3.11 or newer, make and git: the first command makes .venv.
# PYTHON=... chooses another interpreter, ARGS=... is handed on: make test ARGS="tests/unit -x"

.DEFAULT_GOAL := help
.PHONY: help try test examples check docs format bench clean
# One recipe at a time: two of them would install into the same .venv (tools/bootstrap.py locks it for two makes).
.NOTPARALLEL:
# Somebody else's import path must not reach our virtual environment.
unexport PYTHONHOME PYTHONPATH VIRTUAL_ENV
export PYTHON

PY := .venv/bin/python

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' Makefile

try: ## install into .venv, then a demo: several processes take turns on an embedded server
	@sh tools/bootstrap.sh run
	@$(PY) -m tenure demo $(ARGS)

test: ## the whole test suite
	@sh tools/bootstrap.sh dev
	@$(PY) -m pytest $(ARGS)

examples: ## the tests of the example applications, with their figures in build/examples
	@sh tools/bootstrap.sh dev
	@$(PY) -m pytest tests/examples $(ARGS)

check: ## lint, format, types, import rules, docs; all of them, also after a failure
	@sh tools/bootstrap.sh dev
	@$(PY) tools/check.py

docs: ## the documentation as a site, in build/docs/index.html
	@sh tools/bootstrap.sh dev
	@$(PY) docs/pictures.py
	@$(PY) tools/check.py docs
	@echo "open build/docs/index.html"

format: ## let ruff repair what it can
	@sh tools/bootstrap.sh dev
	@$(PY) -m ruff check --fix-only .
	@$(PY) -m ruff format .

bench: ## measure, and compare with other locks in the same run
	@sh tools/bootstrap.sh dev
	@$(PY) -m bench $(ARGS)

clean: ## remove .venv and everything that can be made again
	rm -rf .venv .nox .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache build dist .coverage*
	find src tests tools bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
