# The few commands of everyday work. Each is a thin name for `cargo xtask`; see CONTRIBUTING.md.
# CARGO_TARGET_DIR is honoured where it is set. Everything is built in the release profile, so that
# RocksDB's C++ is compiled once (docs/adr/0008-one-build-profile.md).

CARGO ?= cargo
XTASK = $(CARGO) xtask
DATA ?= ./data
PORT ?= 5984

.DEFAULT_GOAL := help
.PHONY: help setup run cluster test conformance bench lint fmt docs dist

help: ## Show these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Check for (and as root on Debian or Ubuntu install) what the build needs
	@$(XTASK) setup

run: setup ## Build and start a server: PORT (5984) on loopback, its data in DATA (./data)
	@$(XTASK) run --data $(DATA) --port $(PORT)

cluster: setup ## Build and start three nodes on a PostgreSQL of the machine's packages, and a proxy on PORT (5984)
	@$(XTASK) cluster --port $(PORT)

dist: setup ## Make packages in dist/; ARGS=--try installs each in an empty place and tries it
	@$(XTASK) dist $(ARGS)

test: setup ## Everything that must hold: format, lints, tests, docs, tidy, conformance, clients, console, README
	@$(XTASK) ci

conformance: setup ## Replay the recorded answers of CouchDB; AREA=views plays one area
	@$(XTASK) conformance $(if $(AREA),--area $(AREA))

bench: setup ## Run the benchmarks; ARGS are those of `settee bench`
	@$(XTASK) bench $(ARGS)

lint: setup ## Lints and tidy
	@$(XTASK) lint

fmt: ## Format the code
	@$(XTASK) fmt

docs: setup ## Build the documentation of the crates
	@$(XTASK) docs
