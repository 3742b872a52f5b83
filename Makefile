# Needs Python 3.11 or newer and make; everything else goes into .venv on the first run.
PYTHON ?= python3
ARGS ?=

BIN := .venv/bin
INSTALL = $(1)/python -m pip install --quiet --constraint constraints.txt
# Tests reach this machine and nothing else; a cassette is played, never recorded.
PYTEST := pytest --block-network --allowed-hosts=127.0.0.1,localhost,::1 --record-mode=none

.PHONY: demo bench-agents judges probes test test-agents test-clients test-frameworks test-langfuse test-litellm lint docs bench soak corpus resolve wheel-test dist notebooks record clean

# The demo needs one SDK, another example (ARGS=raw_sdk) all of .venv.
demo: $(if $(ARGS),.venv,.venv-demo)/.installed
	@$(<D)/bin/python examples $(ARGS)

# Some of the time is spent waiting for somebody else's timeout, so one worker more than cores.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
test: .venv/.installed
	$(BIN)/$(PYTEST) --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

# The Langfuse adapter on both major versions of its SDK; LiteLLM's own callback allows 4.x only.
test-langfuse: .venv/.installed .venv-langfuse4/.installed
	$(BIN)/$(PYTEST) tests/langfuse $(ARGS)
	.venv-langfuse4/bin/$(PYTEST) tests/langfuse $(ARGS)

# What needs the frameworks of .venv-agents is checked there.
AGENTS := honcho_fallback_openai_agents|honcho_fallback_pydantic_ai|tests/agents|benchmarks/agent_frameworks|examples/(agents_sdk|pydantic_agent)
lint: .venv/.linters .venv-agents/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --exclude '$(AGENTS)'
	$(BIN)/pyright
	$(BIN)/lint-imports
	.venv-agents/bin/mypy -p honcho_fallback_openai_agents -p honcho_fallback_pydantic_ai -p tests.agents \
		-m benchmarks.agent_frameworks -m agents_sdk -m pydantic_agent
	.venv-agents/bin/pyright -p tests/agents

# The site, in build/site, with its generated pages written anew; a dead link is an error.
docs: .venv-docs/.installed
	.venv-docs/bin/python docs/_generate.py
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

# Everything side by side, published as docs/benchmarks.md; it is refused where other programs run.
# ARGS=--print-only measures there, too, ARGS=--quick tries it out, ARGS=overhead/core measures one
# part, ARGS=--help lists them.
bench: .venv-peers/.installed
	.venv-peers/bin/python -m benchmarks $(ARGS)

# The same for the agent frameworks; it replaces their section of that page.
bench-agents: .venv-agents/.installed
	.venv-agents/bin/python -m benchmarks.agent_frameworks $(ARGS)

# Very many calls with faults and impatient readers; ARGS=--short is what CI runs.
soak: .venv/.installed
	$(BIN)/python -m benchmarks.soak $(ARGS)

# Every extra of `all` installs beside LiteLLM's Proxy, which pins rich and others; nothing is installed here.
resolve: .venv/.installed
	$(BIN)/python -m pip install --quiet --dry-run --ignore-installed '.[all]' 'litellm[proxy]>=1.106' prometheus_client

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

# What a release uploads, in dist: the sdist and the wheel that is built from it, checked.
dist: .venv-dist/.installed
	rm -rf dist
	.venv-dist/bin/python -m build
	.venv-dist/bin/twine check --strict dist/*
	.venv-dist/bin/check-wheel-contents dist

# The LiteLLM adapter's tests, the Proxy's among them, on the oldest and the newest
# LiteLLM, each on its own. They come without their own pins, beside what the pinned one needs: the
# newest asks for a certifi that not every index has.
LITELLMS ?= 1.106.2 1.109.1
test-litellm: $(LITELLMS:%=.venv-litellm-%/.installed)
	set -e; for litellm in $(LITELLMS); do \
		echo "== litellm $$litellm"; \
		".venv-litellm-$$litellm/bin/"$(PYTEST) tests/litellm $(ARGS); \
	done

# Real clients at servers that are really broken, with the oldest and the newest clients; the pinned
# ones and the frameworks are in `make test`.
OLDEST := aiohttp==3.12.0 anthropic==1.0.0 anyio==4.8.0 google-genai==2.33.0 httpx==0.28.1 \
	openai==2.20.0 requests==2.32.0
NEWEST := aiohttp anthropic anyio google-genai httpx httpx2 'openai>=3' requests
test-clients: .venv-clients-oldest/.installed .venv-clients-newest/.installed
	.venv-clients-oldest/bin/$(PYTEST) tests/contract/test_reality.py $(ARGS)
	.venv-clients-newest/bin/$(PYTEST) tests/contract/test_reality.py $(ARGS)

# The adapters for OpenAI's Agents SDK and Pydantic AI, which LiteLLM's openai 2 cannot stand beside.
test-agents: .venv-agents/.installed
	.venv-agents/bin/$(PYTEST) tests/agents $(ARGS)

# The frameworks' own tests with our classes in place of theirs; nothing of them is kept here. The
# sdist of Pydantic AI has no tests: PYDANTIC_AI_TESTS names its repository's folder tests.
judges: .venv-judges/.installed
	.venv-judges/bin/python tests/agents/judges.py $(ARGS)

# The examples of frameworks that there is no adapter for; without one of them its example is skipped.
test-frameworks: .venv-frameworks/.installed
	.venv-frameworks/bin/$(PYTEST) tests/examples/test_frameworks.py $(ARGS)

.venv-agents/.installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(@D)/bin/python -m pip install --quiet --group test --group agent-frameworks --group lint --editable '.[openai-agents,pydantic-ai]'
	touch $@

# Pydantic AI's conftest imports its evaluations, whose pins lag behind.
.venv-judges/.installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(@D)/bin/python -m pip install --quiet --group test --group agent-frameworks --group judges --editable '.[openai-agents,pydantic-ai]'
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

.venv-litellm-%/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(call INSTALL,$(@D)/bin) --group test --group integrations --editable '.[litellm,redis]'
	$(@D)/bin/python -m pip install --quiet --no-deps litellm==$*
	touch $@

# Each adapter's probe on the newest releases of what it adapts: what of theirs it uses without a promise.
probes: .venv-newest/.installed
	.venv-newest/bin/$(PYTEST) tests/honcho/test_probe.py tests/langchain/test_probe.py \
		tests/langfuse/test_langfuse_probe.py tests/litellm/test_history_wire.py \
		tests/litellm/test_probe.py $(ARGS)

.venv-newest/.installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(@D)/bin/python -m pip install --quiet --group test --editable '.[agents,honcho,langfuse,litellm,providers]'
	$(@D)/bin/python -m pip install --quiet --no-deps --upgrade 'litellm<1.110' # whatever it pins
	touch $@

# Run the notebooks in place; a name runs one: ARGS=notebooks/05_langfuse.ipynb.
notebooks: .venv/.installed
	$(BIN)/python notebooks/rerun.py $(ARGS)

record: .venv/.installed
	$(BIN)/python recording/record.py $(ARGS)

clean:
	rm -rf .venv .venv-agents .venv-clients-* .venv-corpus .venv-demo .venv-dist .venv-docs .venv-frameworks .venv-judges .venv-langfuse4 .venv-litellm-* .venv-newest .venv-peers \
		.venv-record .venv-wheel build dist .hypothesis .*_cache

# pip 25.1 is the first that knows --group.
.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(call INSTALL,$(BIN)) --group test --group integrations \
		--editable '.[agents,cli,honcho,langfuse,litellm,notebooks,providers,redis]'
	$(call INSTALL,$(BIN)) --no-deps langchain-tests==1.1.9
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

.venv-langfuse4/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-langfuse4
	.venv-langfuse4/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	sed '/^langfuse==/d' constraints.txt > .venv-langfuse4/constraints.txt
	.venv-langfuse4/bin/python -m pip install --quiet --constraint .venv-langfuse4/constraints.txt \
		--group test --group integrations --editable '.[agents,langfuse]' \
		'langfuse<5'
	touch $@

# An environment of its own, so that nobody else needs the peers.
.venv-peers/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(call INSTALL,.venv-peers/bin) --group peers --group integrations \
		--editable '.[agents,langfuse,litellm,providers]'
	touch $@

# An environment of its own: it pins the SDKs' versions.
.venv-corpus/.installed: $(CORPUS)/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv-corpus
	.venv-corpus/bin/python -m pip install --quiet --requirement $(CORPUS)/requirements.txt --editable .
	touch $@
