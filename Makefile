# One place for the commands of this repository; `make` alone lists them.
#
# Environments are built once and again only when what they are built from has changed: each
# has stamp files that name it.  Nothing here reaches the network for what is installed.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet

CORE := $(shell find core_ext -name '*.py[xi]' -o -name '*.px[di]' -o -name '*.h')
# py.typed stands for its package: a new one has to be installed, a changed module does not.
PACKAGES := $(wildcard */consensuspr/*/py.typed consensusbench/py.typed)
BUILT_FROM := setup.py pyproject.toml server/consensuspr/version.py $(CORE) $(PACKAGES)
TYPED := proto core_ext server client $(wildcard consensusbench benchmarks reliability examples tests) setup.py

# The build environment is the project's own: no second download of Cython for each rebuild.
BUILD_REQUIREMENTS = "import tomllib; \
print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')"

.PHONY: help
help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.installed ## start a real server, score the sample rollouts, explain one
	@$(BIN)/python examples/demo.py

.PHONY: test
test: $(VENV)/.installed-dev ## run the tests
	@$(BIN)/pytest -q $(TOGETHER)

.PHONY: test-all
test-all: $(VENV)/.installed-dev ## ... and those that take long, with more examples of each property
	@$(BIN)/pytest -q --full $(TOGETHER)

# Three at a time, because many tests wait for servers; an idle worker takes tests from a busy one.
TOGETHER := -n 3 --dist worksteal

# TEST_FLAGS=--full runs the long tests too, wherever tests run.
TEST_FLAGS ?=

# Trainers bring two gigabytes, so that they have an environment of their own, where only those
# tests run that `make test` skips.
TRAINER_TESTS := $(addprefix tests/, verl ray deploy/test_verl_recipes.py \
  $(addprefix examples/test_, verl_cpu.py grow.py study.py smollm2.py))
# On a cluster of their own, and a process is connected to one cluster at a time.
BENCH_TRAINER_TESTS := $(addprefix tests/consensusbench/, \
  export/test_verl_reads.py construction/test_ray_engine.py)
.PHONY: test-verl
test-verl: .venv-verl-0.9.1/.installed build/openrlhf/.downloaded ## run the tests that need verl 0.9.1 and Ray
	@CONSENSUSPR_OPENRLHF_WHEELS=build/openrlhf .venv-verl-0.9.1/bin/pytest -q $(TEST_FLAGS) \
	  $(TRAINER_TESTS) tests/http/test_real_clients.py
	@.venv-verl-0.9.1/bin/pytest -q $(TEST_FLAGS) $(BENCH_TRAINER_TESTS)

# Not installed: only the client function of each is loaded from its wheel.
build/openrlhf/.downloaded: | .venv-verl-0.9.1/.installed
	@mkdir -p $(@D)
	@for version in 0.6.0 0.8.0 0.9.0 0.11.2; do \
	  .venv-verl-0.9.1/bin/python -m pip --quiet --disable-pip-version-check \
	    download --no-deps --dest $(@D) openrlhf==$$version || \
	    echo "no wheel of OpenRLHF $$version for this Python: its client is not tested"; \
	done
	@touch $@

.PHONY: test-trl
test-trl: .venv-trl/.installed ## run the tests that need TRL
	@.venv-trl/bin/pytest -q $(TEST_FLAGS) tests/trl tests/trainers/test_ms_swift.py

.PHONY: test-trainers
test-trainers: .venv-trainers/.installed ## run the tests that need verifiers, NeMo Gym and inspect_ai
	@.venv-trainers/bin/pytest -q $(TEST_FLAGS) tests/trainers

# NeMo Gym asks for Python 3.13; its verifying needs no more than this project does.
.venv-trainers/.packages: tests/trainers/requirements.txt
	@echo "installing verifiers, NeMo Gym and inspect_ai into .venv-trainers (about 1 GB)"
	@test -x .venv-trainers/bin/python || $(PYTHON) -m venv .venv-trainers
	@$(INSTALL) -r $<
	@$(INSTALL) --no-deps --ignore-requires-python nemo-gym==0.7.0
	@touch $@

.venv-trl/.packages: tests/trl/requirements.txt tests/trainers/requirements-ms-swift.txt
	@echo "installing TRL and ms-swift into .venv-trl (about 1 GB)"
	@test -x .venv-trl/bin/python || $(PYTHON) -m venv .venv-trl
	@$(INSTALL) torch==2.13.0
	@$(INSTALL) -r $< -r tests/trainers/requirements-ms-swift.txt
	@$(INSTALL) --no-deps ms-swift==4.6.0
	@touch $@

# On the older ones verl itself imports what Ray has deprecated since.
OLD_VERL = -W "ignore:Ray state API:DeprecationWarning"
.PHONY: trainers
trainers: .venv-verl-0.9.1/.packages .venv-trl/.packages .venv-trainers/.packages ## fetch the trainers that tests need (4 GB)

.PHONY: test-verl-all
test-verl-all: test-verl .venv-verl-0.8.0/.installed .venv-verl-0.7.1/.installed ## ... and verl 0.8 and 0.7
	@.venv-verl-0.8.0/bin/pytest -q $(OLD_VERL) tests/verl
	@.venv-verl-0.7.1/bin/pytest -q $(OLD_VERL) tests/verl

.PHONY: check
check: lint types lines ## lint, type-check and count everything

.PHONY: lint
lint: $(VENV)/.installed-dev ## lint everything and check its formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint core_ext

.PHONY: types
types: $(VENV)/.installed-dev ## type-check everything
	$(BIN)/mypy $(TYPED)

.PHONY: lines
lines: ## count the lines of each part beside its target
	@$(PYTHON) .ci/lines.py

.PHONY: format
format: $(VENV)/.installed-dev ## rewrite the sources in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: bench
bench: $(VENV)/.installed-dev ## measure speed (a few minutes); BENCHMARKS="core service" for some
	@$(BIN)/python -m benchmarks $(BENCHMARKS)

STUDY := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 nice .venv-verl-0.9.1/bin/python -m examples.study
.PHONY: study
study: .venv-verl-0.9.1/.installed ## do the runs of examples/study/PLAN-3.md that are missing (hours, one core), and print their tables
	@for part in starts run "report --picture docs/images/study.svg"; do \
	  $(STUDY) $$part $(STUDY_FLAGS) || exit 1; done

.PHONY: study-smoke
study-smoke: .venv-verl-0.9.1/.installed ## do the study in small, to see that it works
	@rm -rf build/study
	@for part in starts run "report --picture build/study/levels.png"; do \
	  $(STUDY) $$part --smoke --folder build/study || exit 1; done

# GUARD_FLAGS=--require fails where instructions cannot be counted, for a CI that has valgrind.
.PHONY: guard
guard: $(VENV)/.installed ## fail where scoring became dearer than its baseline allows
	@$(BIN)/python -m benchmarks.guard $(GUARD_FLAGS)

# FAULTS="NAME ..." makes those alone; FUZZ_FLAGS and SOAK_FLAGS are options of the commands.
.PHONY: chaos
chaos: $(VENV)/.installed-dev ## make faults while clients score (ten minutes)
	@$(BIN)/python -m reliability.chaos $(FAULTS)

.PHONY: fuzz
fuzz: $(VENV)/.installed-dev ## look for input that makes a part fail or disagree (some minutes)
	@$(BIN)/python -m reliability.fuzz $(FUZZ_FLAGS)

.PHONY: soak
soak: $(VENV)/.installed-dev ## let a server live under load and small accidents (an hour)
	@$(BIN)/python -m reliability.soak $(SOAK_FLAGS)

# The core again, built with every check on, or with sanitizers, beside the one in $(VENV).
COMPILED_TESTS := tests/core --ignore tests/core/expressions
.PHONY: checked
checked: build/checked/.built ## run the tests of compiled code with all run-time checks compiled in
	@PYTHONPATH=build/checked/site CONSENSUSPR_EXPECT_CORE=build/checked/site \
	  $(BIN)/pytest -q $(TEST_FLAGS) -p no:cacheprovider $(COMPILED_TESTS)

# Leaks are not looked for: the interpreter itself never frees all that it allocates.
SANITIZED = PYTHONPATH=build/sanitize/site CONSENSUSPR_EXPECT_CORE=build/sanitize/site \
  PYTHONMALLOC=malloc \
  ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 \
  LD_PRELOAD="$$($(CC) -print-file-name=libasan.so)"
.PHONY: sanitize
sanitize: build/sanitize/.built ## run the tests of compiled code under AddressSanitizer and UBSan
	@$(SANITIZED) $(BIN)/pytest -q $(TEST_FLAGS) -p no:cacheprovider $(COMPILED_TESTS)

build/%/.built: $(VENV)/.installed-dev $(BUILT_FROM) $(shell find core_ext -name '*.py')
	@echo "building the core ($*)"
	@rm -rf build/$*
	@CONSENSUSPR_BUILD=$* CONSENSUSPR_REQUIRE_NATIVE=1 \
	  $(PIP) install --no-deps --no-build-isolation --target build/$*/site .
	@touch $@

.PHONY: audit
audit: $(VENV)/.installed-dev .venv-audit/.installed ## look for known weaknesses of what is installed; list it in build/sbom.json
	@mkdir -p build; rm -f build/audit.json
	@.venv-audit/bin/cyclonedx-py environment $(BIN)/python --output-reproducible \
	  --output-file build/sbom.json
	@.venv-audit/bin/pip-audit --format json --output build/audit.json --progress-spinner off \
	  --path $$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))") || \
	  { test ! -e build/audit.json && echo "not audited: the package index does not answer"; }

.PHONY: proto
proto: .venv-proto/.installed ## write the protocol's stubs again from its .proto
	@.venv-proto/bin/python proto/generate.py

.PHONY: proto-check
proto-check: .venv-proto/.installed ## fail where the committed stubs are stale
	@.venv-proto/bin/python proto/generate.py --check

.PHONY: reference
reference: $(VENV)/.installed-dev ## write the generated pages of docs/reference again from the code
	@$(BIN)/python .ci/reference.py

# It fails on any warning, such as a link that leads nowhere.
.PHONY: site
site: .venv-docs/.installed ## build the documentation into build/site
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict
	@echo "open build/site/index.html, or serve it with search: python3 -m http.server -d build/site"

.PHONY: images
images: $(VENV)/.installed-dev ## draw the pictures of the README again
	@$(BIN)/python examples/demo.py --svg docs/images/demo.svg
	@$(BIN)/python -m examples.page_pictures docs/images

# A wheel of this machine's compiler says linux_x86_64, which no index takes: auditwheel finds the
# oldest glibc that it runs on, and writes that into its tag.
.PHONY: dist
dist: $(VENV)/.installed-dev ## build the source distribution and the wheel, and check both
	@rm -rf dist build/lib* build/bdist*
	@mkdir -p build
	@$(BIN)/python -m build --no-isolation >build/dist.log 2>&1 || { cat build/dist.log >&2; exit 1; }
	@case $$(ls dist/*.whl) in *-linux_*) \
	  PATH="$(CURDIR)/$(BIN):$$PATH" auditwheel repair --wheel-dir dist dist/*-linux_*.whl; \
	  rm dist/*-linux_*.whl; $(BIN)/auditwheel show dist/*.whl;; esac
	@$(BIN)/twine check --strict dist/*
	@grep -q '^Repository' pyproject.toml || \
	  echo "no [project.urls] Repository in pyproject.toml: links of the README stay relative"
	@$(BIN)/python .ci/wheel_contents.py dist
	@ls -l dist

# IMAGE_ARGS="EXTRAS=http" sets build arguments.
.PHONY: image
image: ## do the steps of the Dockerfile without Docker, and ask the server for its health
	@rm -rf build/image
	@$(PYTHON) .ci/image_by_hand.py build/image $(IMAGE_ARGS)

.PHONY: release
release: ## VERSION=1.2.3: write it and the changelog's heading, commit and tag; pushes nothing
	@$(PYTHON) .ci/release.py "$(VERSION)"

.PHONY: clean
clean: ## remove environments, builds and caches
	rm -rf .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find core_ext -name '*.so' -delete
	find . -name '*.egg-info' -prune -exec rm -rf {} +
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "consensuspr needs Python 3.11 or newer, and $(PYTHON) is not; name one that is:" \
	    "make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created $(BUILT_FROM)
	@echo "building and installing consensuspr into $(VENV)"
	@$(BIN)/python -c $(BUILD_REQUIREMENTS) | $(PIP) install -r /dev/stdin
	@$(PIP) install --no-build-isolation --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing the development tools into $(VENV)"
	@$(PIP) install "consensuspr[dev]"
	@touch $@

# torch first: the build that is asked for, before anything takes the newest with it.
.venv-verl-%/.packages: tests/verl/requirements.txt tests/verl/requirements-verl.txt
	@echo "installing verl $* into .venv-verl-$* (about 2 GB)"
	@test -x .venv-verl-$*/bin/python || $(PYTHON) -m venv .venv-verl-$*
	@$(INSTALL) torch==2.13.0
	@$(INSTALL) verl==$* -r tests/verl/requirements-verl.txt \
	  $(if $(filter 0.7.% 0.8.%,$*),-r tests/verl/requirements-before-0.9.txt)
	@$(INSTALL) -r $<
	@touch $@

# A step on the way for make, gigabytes for whoever waits.
.PRECIOUS: .venv-%/.packages

# The package itself, beside the trainers that an environment has: the core is not built again.
.venv-%/.installed: .venv-%/.packages $(VENV)/.installed
	@echo "installing consensuspr into .venv-$*"
	@$(BIN)/python -c $(BUILD_REQUIREMENTS) | $(INSTALL) -r /dev/stdin
	@$(INSTALL) --no-build-isolation --editable .
	@$(if $(filter verl-%,$*),$(@D)/bin/python -m pip check --disable-pip-version-check)
	@touch $@
.venv-%/.installed .venv-%/.packages: INSTALL = $(@D)/bin/python -m pip --disable-pip-version-check --no-input --quiet install

.venv-audit/.installed: $(VENV)/.created
	@test -x .venv-audit/bin/python || $(PYTHON) -m venv .venv-audit
	@.venv-audit/bin/python -m pip --disable-pip-version-check --no-input --quiet install "pip-audit>=2.7" "cyclonedx-bom>=5"
	@touch $@

.venv-docs/.installed: .ci/requirements-docs.txt
	@echo "installing mkdocs into .venv-docs"
	@test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python -m pip --disable-pip-version-check --no-input --quiet install -r $<
	@touch $@

.venv-proto/.installed: proto/requirements.txt
	@$(PYTHON) -m venv .venv-proto
	@.venv-proto/bin/python -m pip --disable-pip-version-check --quiet install -r $<
	@touch $@
