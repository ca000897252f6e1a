# Every target sets itself up: a fresh machine needs Python 3.11 or newer and make, nothing else.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-long caches real object-stores browser screenshots training focus torture check pages bench bench-quick dist audit docs hardware lock clean

# Tests of servers and agents mostly wait: one worker more than cores. A file stays on one worker, which builds its books once.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(len(os.sched_getaffinity(0)) + 1 if hasattr(os, 'sched_getaffinity') else os.cpu_count())")
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --durations 10 --durations-min 1
# Tests start a hundred processes: what they import is compiled once.
test test-long: export PYTHONDONTWRITEBYTECODE :=
SEEDS ?= 4
test test-long: export SEEDS := $(SEEDS)

demo: $(READY)
	$(BIN)/loadfactor demo

# Every feature once. `make test ROOM=planner` runs one room of tests/, ROOM=agent and ROOM=track a distribution of packages/.
ROOM ?=
SUITE = $(if $(ROOM),$(or $(wildcard tests/$(ROOM) packages/$(ROOM)/tests),$(error there is no tests/$(ROOM))),tests packages $(OWN_STEPS))
# What has a step of its own: these want programs or environments that the others do without.
OWN_STEPS := --ignore=tests/real --ignore=tests/training --ignore=tests/focus --ignore=tests/browser --ignore=tests/object_stores
test: caches
	$(PYTEST) -m "not long" $(SUITE)

# The rest: more seeds of random fleets, servers over long cases, every documented command, all widths of pages, and the examples in docstrings.
test-long: caches
	$(PYTEST) -m long $(SUITE) || [ $$? -eq 5 ] # 5: this room has none
	$(if $(ROOM),,$(BIN)/python -m pytest -q -n 0 --doctest-modules $$(grep -rl '>>> ' --include=*.py src packages/*/src))

# What Numba and Ibis compile, once, before workers start that would each do it.
caches: $(READY)
	$(BIN)/python -m loadfactor.warm_up

# Beside the real Prometheus, VictoriaMetrics, node-exporter and Slurm (which wants root); their Debian packages are in .ci/run. Most of it is waiting.
real: $(READY)
	$(BIN)/python -m pytest -q tests/real -n 4 --dist loadfile

# Books in S3, as moto answers it, and in Azurite, in an environment of its own: 100 rounds of two importers and a kill each.
object-stores: $(READY)
	tests/object_stores/setup.sh
	$(BIN)/python -m pytest -q tests/object_stores -n 2 -rP --timeout 3600 -o faulthandler_timeout=3600

# The pages in Debian's Chromium, through Playwright in an environment of its own.
browser: $(READY)
	PYTHON=$(BIN)/python tests/pinned_environment.sh browser 'Playwright and axe-core'
	$(BIN)/python -m pytest -q tests/browser -n 2 --dist loadfile

# Pictures of all pages over the demo, for docs/look-at-the-pages.md.
screenshots: $(READY)
	PYTHON=$(BIN)/python tests/pinned_environment.sh browser 'Playwright and axe-core'
	test -e demo/manifest.json || $(BIN)/loadfactor demo --store demo --brief
	$(BIN)/python -m tests.browser.screenshots demo docs/pages

# Real training on the CPU, tracked: PyTorch on two ranks, Lightning, Transformers, Accelerate, in an environment of its own.
training: $(READY)
	PYTHON=$(BIN)/python tests/training/setup.sh
	$(BIN)/python -m pytest -q tests/training -n 2

# Statements written as FOCUS by the specification's own validator, in an environment of its own.
focus: $(READY)
	PYTHON=$(BIN)/python tests/pinned_environment.sh focus focus-validator
	$(BIN)/python -m pytest -q tests/focus -n 0

# Kills, damage, full disks and power losses at every durable step of the store, in so many rounds; CI does 5. Then the live server
# is killed as often, and prints what it acknowledged.
ROUNDS ?= 200
# What has more to do in more rounds, of the tests of the live server; the others are in `make test`, and would be the same here.
LIVE := tests/live/test_kills.py::test_what_was_acknowledged_is_in_the_books_once tests/collect/test_fuzzed_streams.py \
	packages/agent/tests/test_spool.py tests/insight/alerts/delivery/test_outbox.py::test_kills_lose_and_repeat_nothing \
	tests/live/test_alerts.py::test_alerts_outlast_kills
LONGEST_S = $$((900 + 60 * $(ROUNDS)))
torture: $(READY)
	TORTURE_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -q tests/torture -n auto --dist worksteal
	TORTURE_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -q $(LIVE) -n 0 -s --timeout $(LONGEST_S) -o faulthandler_timeout=$(LONGEST_S)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Writes the kept text of every page anew; read the difference before it is committed.
pages: $(READY)
	UPDATE_PAGES=1 $(BIN)/python -m pytest -q tests/interfaces/test_pages.py

bench: $(READY)
	$(BIN)/python -m benchmarks

bench-quick: $(READY)
	$(BIN)/python -m benchmarks --quick

# Wheels and sdists of the three distributions as they are committed, SBOM and checksums, into dist/.
dist: $(READY)
	PYTHON=$(BIN)/python tests/pinned_environment.sh dist 'CycloneDX and pip-audit'
	PYTHON=$(BIN)/python packaging/make_dist.sh dist

# The documentation, its spelling checked, as pages with search, into site/; `python3 -m http.server -d site` shows them.
docs: $(READY)
	PYTHON=$(BIN)/python tests/pinned_environment.sh site 'Material for MkDocs and codespell'
	.site-env/bin/codespell *.md docs examples/README.md
	$(BIN)/python packaging/site/make_site.py .site-env/bin/mkdocs site

# Known holes of what is pinned; asks the package index.
audit: $(READY)
	PYTHON=$(BIN)/python tests/pinned_environment.sh dist 'CycloneDX and pip-audit'
	.dist-env/bin/pip-audit --disable-pip --require-hashes --strict -r requirements.lock

# The GPUs of this machine, measured by the Python that has PyTorch in about so many minutes, and beside what loadfactor says of them.
OUT ?= hardware
MINUTES ?= 15
TORCH_PYTHON ?= $(PYTHON)
hardware: $(READY)
	PYTHONPATH=packages/agent/src $(TORCH_PYTHON) -m benchmarks.hardware $(OUT) --minutes $(MINUTES) --agent-python $(CURDIR)/$(BIN)/python
	$(BIN)/python -m benchmarks.hardware.compare $(OUT)

# Needs uv. The locks pin versions and hashes and name no package index; the agent's has what its image holds.
lock: $(READY)
	uv pip compile pyproject.toml --extra dev --no-emit-package loadfactor-agent --no-emit-package loadfactor-track --universal --generate-hashes --no-emit-index-url --no-header -o requirements.lock
	uv pip compile packages/agent/pyproject.toml --extra kubernetes -c requirements.lock --universal --generate-hashes --no-emit-index-url --no-header -o packages/agent/requirements.lock

$(READY): requirements.lock pyproject.toml setup.sh packages/agent/pyproject.toml packages/track/pyproject.toml
	PYTHON=$(PYTHON) sh setup.sh
	touch $(READY)

clean:
	rm -rf .venv .training-env .focus-env .browser-env .azurite-env .dist-env .site-env site bench.json
