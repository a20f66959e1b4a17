# Spillgate. `make` lists what there is to do; CONTRIBUTING.md tells when.

SHELL       := /bin/bash
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 10s
POLICY      ?= examples/quickstart.yaml

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the binary: bin/spillgate
	go build -o bin/spillgate ./cmd/spillgate

.PHONY: run
run: build ## build, then serve examples/quickstart.yaml in front of a demo upstream (POLICY=file)
	bin/spillgate serve $(POLICY) --demo

.PHONY: test
test: needs ## all tests of all modules, with the race detector
	@scripts/test

# These tests read files of every module. `go test` notices changed files
# only inside the module under test, so a cached pass of these would be stale.
.PHONY: house
house: ## the house rules alone: floors, package docs, links, modules, and the tests that docs/proof.md names
	go test -count=1 ./proof/house ./proof/cases

.PHONY: needs
needs: ## install the programs that tests start, if they are missing
	@scripts/needs nginx wrk redis-server gcc=gcc,libc6-dev curl

.PHONY: lint
lint: ## gofmt, go vet, staticcheck
	@unformatted="$$(gofmt -l .)"; [ -z "$$unformatted" ] || { echo "gofmt -w these:"; echo "$$unformatted"; exit 1; }
	go vet work
	go run $(STATICCHECK) work

.PHONY: fuzz
fuzz: ## every fuzz target of every module for FUZZTIME (10s)
	@scripts/fuzz $(FUZZTIME)

.PHONY: bench
bench: ## measure against peers and floors, in one run
	@scripts/programs bench/*/

.PHONY: bench-short
bench-short: ## the same in seconds; fails by what is counted (bytes, allocations, calls), not by time
	@scripts/programs bench/*/ -- -short

.PHONY: proof
proof: ## the long proofs: lists, histories, seeds, mutants, soak, five minutes of each fuzz target
	@scripts/programs proof/long/*/
	@scripts/fuzz 5m

.PHONY: rehearse
rehearse: ## publish every module to a throw-away proxy and use it as a stranger would
	go run ./proof/rehearse

.PHONY: tidy
tidy: ## go mod tidy in every module, or in one: make tidy MODULE=policyfile
	@scripts/gomod tidy $(MODULE)

.PHONY: get
get: ## change a dependency: make get MODULE=policyfile PKG=example.com/thing@v1.2.3
	@scripts/gomod get "$(MODULE)" "$(PKG)"
