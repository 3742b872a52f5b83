# Needs Python 3.11 to 3.13 and make; everything else goes into .venv on the first run.
PYTHON ?= python3
ARGS ?=

BIN := .venv/bin
INSTALL = $(1)/python -m pip install --quiet --constraint constraints.txt
# Tests reach this machine and nothing else; a cassette is played, never recorded.
PYTEST := pytest --block-network --allowed-hosts=127.0.0.1,localhost,::1 --record-mode=none

.PHONY: demo test lint bench wheel-test record clean

demo: .venv/.installed
	$(BIN)/honcho-fallback demo $(ARGS)

test: .venv/.installed
	$(BIN)/$(PYTEST) $(ARGS)

lint: .venv/.linters
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: .venv/.installed
	$(BIN)/python benchmarks/overhead.py $(ARGS)
	$(BIN)/python benchmarks/outage.py

# The unit tests again, from a folder that has no source tree beside it.
wheel-test: .venv/.installed
	rm -rf .venv-wheel build/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(call INSTALL,.venv-wheel/bin) --group test "$$(echo build/wheel/*.whl)[cli]"
	outside=$$(mktemp -d) && trap 'rm -rf "$$outside"' EXIT \
		&& mkdir "$$outside/tests" && cp pyproject.toml "$$outside" \
		&& cp -R tests/unit $(wildcard tests/conftest.py) "$$outside/tests" \
		&& cd "$$outside" && "$(CURDIR)/.venv-wheel/bin/"$(PYTEST) $(ARGS)

record: .venv/.installed
	$(BIN)/python recording/record.py $(ARGS)

clean:
	rm -rf .venv .venv-record .venv-wheel build dist .hypothesis .*_cache

# pip 25.1 is the first that knows --group.
.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(call INSTALL,$(BIN)) --group test --group integrations \
		--editable '.[agents,cli,demo,langfuse,litellm,redis]'
	$(call INSTALL,$(BIN)) --no-deps langchain-tests==1.1.9
	touch $@

.venv/.linters: .venv/.installed
	$(call INSTALL,$(BIN)) --group lint
	touch $@
