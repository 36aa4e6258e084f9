# Every command of the tree, for people and CI alike. `make help` lists them.
# Needs python3 (3.10 or later), cargo and a C compiler; the rest is installed, pinned, into .venv. `make test` also
# starts real servers, and installs Debian's packages of them where they are missing (scripts/servers).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
# By file and not by an index of ours: where packages come from is the machine's setting.
INSTALL = $(BIN)/python scripts/install.py
# Two test workers a core, since most wait for servers; with three browsers were slow enough for tests to fail.
# `make test WORKERS=0` runs them in one process, for a debugger.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 2)

RUST_SOURCES := Cargo.toml Cargo.lock pyproject.toml $(shell find crates -name '*.rs' -o -name Cargo.toml)
PYTHON_SOURCES := LICENSE $(wildcard README.md) $(shell find python packaging -type f ! -name '*.so' ! -name '*.pyc')
LINTED := python tests benchmarks examples scripts deploy

export PYO3_PYTHON = $(abspath $(BIN)/python)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run build test test-fast test-rust shuttle sanitize test-pythons soak bench bench-jobs bench-service bench-running bench-guard bench-cluster bench-compare figures screenshots lint format wheel wheels tree docs lock fresh-check clean bench-billion bench-corpus bench-crawl
# Parts of `lint`, apart so that `make test` runs two of them at a time.
.PHONY: lint-python lint-stubs lint-rust lint-deploy
# Every test imported once, so that bytecode is kept of all: else each worker would compile all of it for itself.
.PHONY: collect

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## set up, build, and serve filters over the Redis protocol and HTTP until Ctrl-C (RUN="--help" for what it can do)
	@$(BIN)/bloomery serve $(RUN)

build: $(STAMPS)/run $(STAMPS)/build ## set up .venv and build the extension in release mode

# Two at a time before the tests: linking the extension and mypy each keep one core busy and the other idle (3:50
# minutes one after another, on two cores). AFTER keeps two installations of packages from running at once.
test: export CI = true
test: $(STAMPS)/run ## everything CI runs: set-up, lint, Rust tests, Python tests
	$(MAKE) --jobs=2 --output-sync=target AFTER="$(STAMPS)/docs $(STAMPS)/bench" WHEEL=$(STAMPS)/wheel $(STAMPS)/wheel lint test-rust $(STAMPS)/servers $(STAMPS)/client-tests collect
	HYPOTHESIS_PROFILE=ci $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=50 || $(AGAIN)

# Hundreds of tests start real servers, on however many cores there are. What failed beside the others is run again
# alone, and if that passes it is said, loudly: such a race is a defect, of the test or of what it tests.
AGAIN = { echo "FAILED beside others, now alone:" && \
	HYPOTHESIS_PROFILE=ci $(BIN)/python -m pytest -n 0 --last-failed --last-failed-no-failures none && \
	echo "FLAKY: what is listed as failed above passed alone. Find the race."; }

test-fast: build $(STAMPS)/dev ## the tests to run while working: under a minute once built
	HYPOTHESIS_PROFILE=fast $(BIN)/python -m pytest -n auto --dist worksteal -m "not slow and not soak"

collect: build $(STAMPS)/dev $(AFTER)
	$(BIN)/python -m pytest --collect-only --quiet > $(VENV)/collected || { tail -50 $(VENV)/collected; exit 1; }

# The extension crate has no tests of its own: it cannot link outside an interpreter, and pytest covers it.
test-rust: $(STAMPS)/venv ## the Rust core's tests
	cargo test --locked --quiet --workspace --exclude bloomery-python

shuttle: ## the hand-over between workers and the control plane, in thousands of schedules
	cargo test --locked --quiet -p bloomery-server --features shuttle --test handover

# RUSTC_BOOTSTRAP lets a stable compiler take -Z. Not the thread sanitizer: it reports the locks of a standard library
# that was not built with it.
sanitize: ## the Rust tests under the address sanitizer, and the core's under Miri if a nightly toolchain has it (minutes)
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address cargo test --locked --quiet --tests -p bloomery-core -p bloomery-server \
		--target $$(rustc -vV | sed -n 's/^host: //p') --target-dir target/sanitize
	@if cargo +nightly miri --version > /dev/null 2>&1; then \
		MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --locked --package bloomery-core --lib -- \
			bits probe:: fold:: cells:: threads:: utf8::; \
	else echo "Miri did not run: no nightly toolchain has it" >&2; fi

test-pythons: build $(STAMPS)/dev ## the wheel and its tests on every other CPython found (PATH, pyenv, PYTHONS=...)
	$(BIN)/python -m scripts.test_pythons

soak: build $(STAMPS)/dev $(STAMPS)/wheel $(STAMPS)/servers $(STAMPS)/client-tests $(STAMPS)/docs ## the long runs: many more examples, more hostile bytes
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -n $(WORKERS) --timeout 3600

bench: build $(STAMPS)/dev $(STAMPS)/bench $(STAMPS)/servers ## measure it all, in a quarter of an hour, with one report (BENCH="--help", "--plan", "--only NAME")
	$(BIN)/python -m benchmarks $(BENCH)

bench-jobs: build $(STAMPS)/dev $(STAMPS)/bench $(STAMPS)/servers ## measure what single pages are about: hashes, caches, crawls, segments, signatures
	$(BIN)/python -m benchmarks --only hashing admission seen crawl segments signatures $(BENCH)

bench-service: build $(STAMPS)/dev $(STAMPS)/servers ## measure the server against redis-server (BENCH="--quick")
	$(BIN)/python -m benchmarks --only service $(BENCH)

bench-running: build $(STAMPS)/dev $(STAMPS)/servers ## measure HTTP, samples and users of the server (BENCH="--quick")
	$(BIN)/python -m benchmarks --only running $(BENCH)

bench-guard: build $(STAMPS)/dev $(STAMPS)/servers ## measure exact answers in front of PostgreSQL and Redis (BENCH="--quick")
	$(BIN)/python -m benchmarks --only guard $(BENCH)

bench-cluster: build $(STAMPS)/dev $(STAMPS)/servers ## measure filters in Redis, nodes and HAProxy (BENCH="--quick")
	$(BIN)/python -m benchmarks --only cluster $(BENCH)

bench-compare: build $(STAMPS)/dev $(STAMPS)/bench $(STAMPS)/servers ## measure what else people use: set, Redis, PostgreSQL, RocksDB
	$(BIN)/python -m benchmarks --only compare $(BENCH)

bench-billion: build $(STAMPS)/dev $(STAMPS)/bench ## measure 10^9 keys and 10^9 URLs in one filter (BENCH="--quick")
	$(BIN)/python -m benchmarks --only billion $(BENCH)

bench-crawl: build $(STAMPS)/dev ## measure our dupefilter of Scrapy beside its own (BENCH="--quick")
	$(BIN)/python -m benchmarks --only crawl $(BENCH)

bench-corpus: build $(STAMPS)/dev $(STAMPS)/bench $(STAMPS)/dolma ## measure text corpora beside Dolma's deduper and datasketch (BENCH="--quick")
	$(BIN)/python -m benchmarks --only corpus $(BENCH)

figures: $(STAMPS)/dev $(STAMPS)/bench ## README's and the pages' figures anew, from benchmarks/results/*.json
	$(BIN)/python scripts/admission_plot.py
	$(BIN)/python -m scripts.figures
	$(BIN)/python scripts/scaling_page.py

screenshots: build $(STAMPS)/dev $(STAMPS)/servers ## the server's pages as pictures, in docs/images/pages: look at them
	$(BIN)/python scripts/screenshots.py

lint: lint-python lint-stubs lint-rust lint-deploy ## ruff, generated twins, mypy --strict, stubtest, rustfmt, clippy; Dockerfile, compose file, workflows

lint-python: $(STAMPS)/run $(STAMPS)/dev $(AFTER)
	$(BIN)/python scripts/unasync.py --check
	$(BIN)/ruff check $(LINTED)
	$(BIN)/ruff format --check $(LINTED)
	$(BIN)/mypy --strict

lint-stubs: build $(STAMPS)/dev
	$(BIN)/python scripts/man_pages.py --check
	$(BIN)/python -m mypy.stubtest --mypy-config-file pyproject.toml \
		--allowlist scripts/stubtest-allow.txt --ignore-unused-allowlist bloomery._native

lint-rust: $(STAMPS)/venv
	cargo fmt --all --check
	cargo clippy --locked --quiet --workspace --all-targets -- -D warnings

lint-deploy: $(STAMPS)/dev
	$(BIN)/hadolint --ignore DL3059 deploy/Dockerfile
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.compose-spec deploy/compose.yaml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/idea.yml
	$(BIN)/zizmor --quiet --offline --no-progress .github/workflows

format: $(STAMPS)/dev ## put Python, Rust and the pages into the house format, write the generated twins
	$(BIN)/ruff check --fix-only --quiet $(LINTED)
	$(BIN)/ruff format $(LINTED)
	$(BIN)/python scripts/unasync.py
	$(BIN)/python scripts/man_pages.py
	$(BIN)/python scripts/wrap_pages.py
	$(BIN)/python scripts/tree.py --page
	cargo fmt --all

wheel: $(STAMPS)/wheel ## an installable wheel, in dist/
	@ls -t dist/*.whl | head -1

wheels: $(STAMPS)/run ## a wheel for every CPython found (PATH, pyenv, PYTHONS=...), each tried, in dist/wheels/
	$(BIN)/python -m scripts.wheels

tree: ## every module of the tree with a sentence about it (TREE=service: below folders of that name)
	@$(PYTHON) scripts/tree.py $(TREE)

docs: $(STAMPS)/docs ## the pages as a site that can be searched, with the API, in dist/site; links are checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build --strict
	@echo "dist/site/index.html; to search in it: $(BIN)/python -m http.server --directory dist/site"

lock: $(STAMPS)/venv ## resolve requirements/*.in again into the pinned, hashed *.txt
	$(BIN)/python -m pip install --quiet $$(grep ^uv== requirements/uv.in)
	$(call compile,uv)
	$(call compile,dev)
	$(call compile,build,-c requirements/dev.txt)
	$(call compile,run,-c requirements/dev.txt)
	$(call compile,image,-c requirements/dev.txt)
	$(call compile,bench,-c requirements/dev.txt)
	$(call compile,bench-build,-c requirements/bench.txt)
	$(call compile,client-tests,--no-deps -c requirements/dev.txt)
	$(call compile,docs,-c requirements/dev.txt)
	$(call compile,dolma)

fresh-check: ## clone HEAD into an empty folder with an empty HOME; run `make run` and `make test` there
	PYTHON="$(PYTHON)" scripts/fresh-check

clean: ## remove everything that was made
	rm -rf $(VENV) target dist python/bloomery/_native.*.so .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One resolution for every Python we support; dev.txt first, and the others agree with it.
compile = $(BIN)/uv pip compile --quiet --no-config --upgrade --universal --generate-hashes \
	--python $(BIN)/python --python-version 3.10 --no-python-downloads \
	--custom-compile-command "make lock" $(2) -o requirements/$(1).txt requirements/$(1).in

# ---- stamps: a file for each step of the set-up, older than what it was made from when it must run again

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "bloomery needs Python 3.10 or later; say which: make PYTHON=python3.12")'
	@command -v cargo > /dev/null || { echo "bloomery needs Rust (cargo): https://rustup.rs" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# What installs the rest, in a third of pip's processor time; pip does it where there is no uv (scripts/install.py),
# and is not to build a uv, which takes long. A failure leaves no stamp: the network may be back for the next make.
$(STAMPS)/uv: requirements/uv.txt | $(STAMPS)/venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --retries 1 --require-hashes --only-binary :all: \
		-r requirements/uv.txt && touch $@ || echo "no uv for now: pip installs the rest" >&2

$(STAMPS)/run: requirements/build.txt requirements/run.txt | $(STAMPS)/uv
	$(INSTALL) -r requirements/build.txt -r requirements/run.txt
	@touch $@

$(STAMPS)/dev: requirements/dev.txt | $(STAMPS)/run
	$(INSTALL) -r requirements/dev.txt
	@touch $@

$(STAMPS)/servers: scripts/servers | $(STAMPS)/venv
	scripts/servers
	@touch $@

# A client library's sources, for its own tests (tests/integration/resp/test_client_suite.py). pip builds the metadata
# of what it downloads, so it is given the library alone.
$(STAMPS)/client-tests: requirements/client-tests.txt | $(STAMPS)/dev
	rm -rf $(VENV)/client-tests
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --no-binary :all: \
		--dest $(VENV)/client-tests -r requirements/client-tests.txt
	@touch $@

$(STAMPS)/docs: requirements/docs.txt | $(STAMPS)/dev
	$(INSTALL) -r requirements/docs.txt
	@touch $@

# Without build isolation: what builds a peer is pinned too.
$(STAMPS)/bench: requirements/bench-build.txt requirements/bench.txt | $(STAMPS)/dev $(filter %/docs,$(AFTER))
	$(INSTALL) -r requirements/bench-build.txt
	$(INSTALL) --no-build-isolation -r requirements/bench.txt
	@touch $@

# A peer whose requirements contradict the others': in an environment of its own.
$(STAMPS)/dolma: requirements/dolma.txt | $(STAMPS)/uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/dolma
	$(BIN)/uv pip install --quiet --require-hashes --python $(VENV)/dolma/bin/python -r requirements/dolma.txt
	@touch $@

# Not beside the wheel, if that is made too: both leave the library in one place.
$(STAMPS)/build: $(RUST_SOURCES) | $(STAMPS)/run $(AFTER) $(WHEEL)
	VIRTUAL_ENV=$(abspath $(VENV)) PIP_QUIET=1 $(BIN)/maturin develop --quiet --release --locked
	@touch $@

$(STAMPS)/wheel: $(RUST_SOURCES) $(PYTHON_SOURCES) | $(STAMPS)/run
	rm -f dist/*.whl
	$(BIN)/maturin build --quiet --release --locked --interpreter $(BIN)/python --out dist
	@touch $@
