# Commands for development. Each calls `cargo xtask`; see CONTRIBUTING.md. All builds use the release profile, so that
# RocksDB's C++ is compiled once (docs/adr/04-build-and-tests.md).

CARGO ?= cargo
XTASK = $(CARGO) xtask
DATA ?= ./data
PORT ?= 5984
STORAGE ?= postgres

.DEFAULT_GOAL := help
.PHONY: help setup run cluster test test-all conformance bench lint fmt docs dist

help: ## Show these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Check for (and as root on Debian or Ubuntu install) the packages that compilation needs
	@$(XTASK) setup

run: setup ## Build and start a server: PORT (5984) on loopback, its data in DATA (./data)
	@$(XTASK) run --data $(DATA) --port $(PORT)

cluster: ## Build and start three nodes and a proxy on PORT (5984); STORAGE=postgres (installed) or s3
	@$(XTASK) setup --for $(if $(filter s3,$(STORAGE)),run,cluster)
	@$(XTASK) cluster --port $(PORT) --storage $(STORAGE)

dist: ## Make packages in dist/; ARGS=--try installs and tests each; ARGS='--target aarch64-unknown-linux-gnu'
	@$(XTASK) setup --for $(if $(findstring aarch64,$(ARGS)),dist-arm64,dist)
	@$(XTASK) dist $(ARGS)

test: ## Format, lints, unit and integration tests, docs, one replay of the scenarios, README; ARGS=--allow-missing
	@$(XTASK) setup --for test $(if $(findstring --allow-missing,$(ARGS)),|| true)
	@$(XTASK) ci --quick $(ARGS)

test-all: ## `test`, and PostgreSQL, two nodes, chaos, attacks, clients, the console in Chromium; ARGS=--allow-missing
	@$(XTASK) setup --for test-all $(if $(findstring --allow-missing,$(ARGS)),|| true)
	@$(XTASK) ci $(ARGS)

conformance: ## Replay the recorded scenarios of CouchDB; AREA=views replays one area
	@$(XTASK) setup --for test
	@$(XTASK) conformance $(if $(AREA),--area $(AREA))

bench: setup ## Run the benchmarks; ARGS are passed to `settee-bench`
	@$(XTASK) bench $(ARGS)

lint: setup ## Run the lints and tidy
	@$(XTASK) lint

fmt: ## Format the code
	@$(XTASK) fmt

docs: setup ## Build the documentation of the crates
	@$(XTASK) docs
