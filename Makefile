# Needs Python 3.11 or newer and make; everything else goes into .venv on the first run.
PYTHON ?= python3
ARGS ?=

BIN := .venv/bin
INSTALL = $(1)/python -m pip install --quiet --constraint constraints.txt
# Tests reach this machine and nothing else; a cassette is played, never recorded.
PYTEST := pytest --block-network --allowed-hosts=127.0.0.1,localhost,::1 --record-mode=none

.PHONY: api demo bench-agents judges probes test test-slow test-pythons test-clients test-frameworks test-newest test-lowest lint docs bench soak corpus resolve wheel-test dist notebooks record clean

# The demo needs one SDK, another example (ARGS=raw_sdk) all of .venv.
demo: $(if $(ARGS),.venv,.venv-demo)/.installed
	@$(<D)/bin/python examples $(ARGS)

# Some of the time is spent waiting for somebody else's timeout, so one worker more than cores.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
# Where no bytecode may be kept, each worker and each of forty processes compiles and rewrites all of it anew.
unexport PYTHONDONTWRITEBYTECODE
SUITE = $(PYTEST) --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
test: .venv/.installed
	$(BIN)/$(SUITE) -m 'not slow' $(ARGS)

# What takes a Proxy, a fleet of processes, a notebook or a soak; tests/conftest.py lists it.
test-slow: .venv/.installed
	$(BIN)/$(SUITE) -m slow $(ARGS)

# All tests on other Pythons than .venv's, each in an environment of its own with the same pins; each
# writes its column of docs/compatibility.md. The newest Python is the workflow's.
test-pythons: test-python-3.12 test-python-3.13
test-python-%: .venv-%/.installed
	.venv-$*/bin/$(SUITE) $(ARGS) --junitxml $(call RELEASES_OF,$*,.venv-$*)

lint: .venv/.linters
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/zizmor --offline --quiet --persona auditor --config .github/zizmor.yml .github

# Every public name with its signature, in tests/public_api.txt; docs/versioning.md says what it is for.
api: .venv/.installed
	$(BIN)/python -m tests.public_api

# The site, in build/site, with its generated pages written anew; a dead link is an error.
docs: .venv-docs/.installed
	.venv-docs/bin/python docs/_generate.py
	.venv-docs/bin/python docs/_compatibility.py
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

# Everything side by side, published as docs/benchmarks.md; it is refused where other programs run.
# ARGS=--print-only measures there, too, ARGS=--quick tries it out, ARGS=overhead/core measures one
# part, ARGS=--help lists them.
bench: .venv-peers/.installed
	.venv-peers/bin/python -m benchmarks $(ARGS)

# The same for the agent frameworks; it replaces their section of that page.
bench-agents: .venv-peers/.installed
	.venv-peers/bin/python -m benchmarks.agent_frameworks $(ARGS)

# Very many calls with faults and impatient readers; ARGS=--short is what CI runs.
soak: .venv/.installed
	$(BIN)/python -m benchmarks.soak $(ARGS)

# Every extra of `all` installs beside LiteLLM's Proxy, which pins rich and others, and beside the whole of each
# framework in today's release; nothing is installed here.
resolve: .venv/.installed
	$(BIN)/python -m pip install --quiet --dry-run --ignore-installed '.[all]' 'litellm[proxy]>=1.108.7' prometheus_client
	$(BIN)/python -m pip install --quiet --dry-run --ignore-installed '.[langchain,litellm,openai-agents,pydantic-ai]' \
	  'litellm[proxy]>=1.108.7' 'pydantic-ai>=2.62' 'openai-agents>=0.24' 'langchain>=1.5'

# Ask classify about real providers' errors, which lie beside this repository; then about those of
# each provider, without what only this provider taught.
CORPUS ?= ../shared/corpus
corpus: .venv-corpus/.installed
	PYTHONPATH=. .venv-corpus/bin/python $(CORPUS)/score.py $(ARGS)
	PYTHONPATH=. .venv-corpus/bin/python benchmarks/leave_one_out.py $(CORPUS)

# The tests of what needs no extra again, from a folder that has no source tree beside it.
wheel-test: .venv/.installed
	rm -rf .venv-wheel build/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(call INSTALL,.venv-wheel/bin) --group test "$$(echo build/wheel/*.whl)[cli]"
	outside=$$(mktemp -d) && trap 'rm -rf "$$outside"' EXIT \
		&& mkdir "$$outside/tests" && cp pyproject.toml "$$outside" \
		&& cp -R tests/unit tests/providers tests/helpers tests/__init__.py tests/conftest.py "$$outside/tests" \
		&& cd "$$outside" && "$(CURDIR)/.venv-wheel/bin/"$(PYTEST) $(ARGS)

# What a release uploads, in dist: the sdist and the wheel that is built from it, checked. Built from
# that sdist once more the wheel has the same bytes. build/sbom.cdx.json lists what the wheel needs.
dist: .venv-dist/.installed
	rm -rf dist build/again build/sbom
	.venv-dist/bin/python -m build
	.venv-dist/bin/twine check --strict dist/*
	.venv-dist/bin/check-wheel-contents dist
	.venv-dist/bin/python -m pip wheel --quiet --no-deps --wheel-dir build/again dist/*.tar.gz
	for wheel in dist/*.whl; do cmp "$$wheel" "build/again/$$(basename "$$wheel")"; done
	$(PYTHON) -m venv --without-pip build/sbom
	.venv-dist/bin/python -m pip --python build/sbom install --quiet dist/*.whl
	version=$$(basename dist/*.whl | cut -d- -f2) \
		&& sed "s/^dynamic = .*/version = \"$$version\"/" pyproject.toml > build/sbom/pyproject.toml
	.venv-dist/bin/cyclonedx-py environment --output-reproducible --pyproject build/sbom/pyproject.toml \
		--output-file build/sbom.cdx.json build/sbom/bin/python

# The suite with the newest releases that there are, beside their own pins, and with the lowest that
# the extras allow; each writes its column of docs/compatibility.md. The lowest have no Agents SDK and
# no Pydantic AI, whose lowest are the pinned ones. Deprecations are what newer releases say of older ones.
RELEASES_OF = build/$(1).xml; status=$$?; $(2)/bin/python docs/_compatibility.py $(1) build/$(1).xml && exit $$status
test-newest: .venv-newest/.installed
	.venv-newest/bin/$(SUITE) --ignore tests/notebooks $(ARGS) --junitxml $(call RELEASES_OF,newest,.venv-newest)
test-lowest: .venv-lowest/.installed
	.venv-lowest/bin/$(SUITE) -W ignore::DeprecationWarning --ignore tests/notebooks $(ARGS) \
		--junitxml $(call RELEASES_OF,lowest,.venv-lowest)

# Real clients at servers that are really broken, with the oldest and the newest clients; the pinned
# ones and the frameworks are in `make test`.
OLDEST := aiohttp==3.12.0 anthropic==1.15.0 anyio==4.8.0 google-genai==2.33.0 httpx==0.28.1 \
	openai==2.20.0 requests==2.32.0
NEWEST := aiohttp anthropic anyio google-genai httpx httpx2 'openai>=3' requests
test-clients: .venv-clients-oldest/.installed .venv-clients-newest/.installed
	.venv-clients-oldest/bin/$(PYTEST) tests/contract/test_reality.py $(ARGS)
	.venv-clients-newest/bin/$(PYTEST) tests/contract/test_reality.py $(ARGS)

# The frameworks' own tests with our classes in place of theirs; nothing of them is kept here. The
# sdist of Pydantic AI has no tests: PYDANTIC_AI_TESTS names its repository's folder tests.
judges: .venv-judges/.installed
	.venv-judges/bin/python tests/agents/judges.py $(ARGS)

# The examples of frameworks and durable engines that there is no adapter for; without one of them its
# example is skipped.
test-frameworks: .venv-frameworks/.installed
	.venv-frameworks/bin/$(PYTEST) tests/examples/test_frameworks.py $(ARGS)

# Pydantic AI's conftest imports its evaluations, whose pins lag behind.
.venv-judges/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(call INSTALL,$(@D)/bin) --group test --group judges --group agent-models --editable '.[openai-agents,pydantic-ai]'
	$(@D)/bin/python -m pip install --quiet --no-deps pydantic-evals
	touch $@

.venv-frameworks/.installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(@D)/bin/python -m pip install --quiet --group test --group frameworks --editable .
	touch $@

.venv-clients-%/.installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(@D)/bin/python -m pip install --quiet --group test --editable . $(if $(filter oldest,$*),$(OLDEST),$(NEWEST))
	touch $@

# Each adapter's probe on the newest releases of what it adapts: what of theirs it uses without a promise.
probes: .venv-newest/.installed
	.venv-newest/bin/$(PYTEST) tests/honcho/test_probe.py tests/langchain/test_probe.py \
		tests/langfuse/test_langfuse_probe.py tests/litellm/test_history_wire.py tests/litellm/test_switch.py \
		tests/litellm/test_release.py $(ARGS)

# What one framework's pin keeps back comes without it: LangChain's Google package, for one, lags behind
# google-genai.
.venv-newest/.installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(@D)/bin/python -m pip install --quiet --group test --group integrations --group agent-models --editable '.[all]'
	$(@D)/bin/python -m pip install --quiet --no-deps --upgrade langchain-tests \
		anthropic google-genai langchain langchain-core langfuse langgraph litellm openai openai-agents
	touch $@

.venv-lowest/.installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet uv
	printf '%s\n' 'openai<3' 'litellm<1.109' > $(@D)/constraints.txt
	$(@D)/bin/uv pip compile --quiet --upgrade --resolution lowest-direct --constraint $(@D)/constraints.txt \
		$(LOWEST:%=--extra %) --group test --group integrations pyproject.toml --output-file $(@D)/lowest.txt
	$(@D)/bin/uv pip install --quiet --python $(@D)/bin/python --requirement $(@D)/lowest.txt
	$(@D)/bin/uv pip install --quiet --python $(@D)/bin/python --no-deps langchain-tests==1.1.9 --editable .
	touch $@
LOWEST := agents cli honcho langfuse litellm otel prometheus providers redis

# Run the notebooks in place; a name runs one: ARGS=notebooks/05_langfuse.ipynb.
notebooks: .venv/.installed
	$(BIN)/python notebooks/rerun.py $(ARGS)

record: .venv/.installed
	$(BIN)/python recording/record.py $(ARGS)

clean:
	rm -rf .venv .venv-3.* .venv-clients-* .venv-corpus .venv-demo .venv-dist .venv-docs .venv-frameworks .venv-judges .venv-lowest .venv-newest .venv-peers \
		.venv-record .venv-wheel build dist .hypothesis .*_cache

# pip 25.1 is the first that knows --group. Another Python is pyenv's, or the one on the path.
.venv-3.%: PYTHON = $(or $(wildcard $(shell pyenv prefix $(@D:.venv-%=%) 2>/dev/null)/bin/python),python$(@D:.venv-%=%))
.venv/.installed .venv-3.12/.installed .venv-3.13/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(call INSTALL,$(@D)/bin) --group test --group integrations --group agent-models \
		--editable '.[all,notebooks]'
	$(call INSTALL,$(@D)/bin) --no-deps langchain-tests==1.1.9
	touch $@

.venv-demo/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(call INSTALL,$(@D)/bin) --no-compile --editable . openai
	touch $@

# The package is here for what the generated pages say of it, with the extras of its commands.
.venv-docs/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(call INSTALL,$(@D)/bin) --group docs --editable '.[cli,honcho]'
	touch $@

.venv-dist/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(call INSTALL,$(@D)/bin) --group dist
	touch $@

.venv/.linters: .venv/.installed
	$(call INSTALL,$(BIN)) --group lint
	touch $@

# An environment of its own, so that nobody else needs the peers.
.venv-peers/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(call INSTALL,.venv-peers/bin) --group peers --group integrations \
		--editable '.[agents,langfuse,litellm,openai-agents,providers,pydantic-ai,redis]'
	touch $@

# An environment of its own: it pins the SDKs' versions.
.venv-corpus/.installed: $(CORPUS)/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv-corpus
	.venv-corpus/bin/python -m pip install --quiet --requirement $(CORPUS)/requirements.txt --editable .
	touch $@
