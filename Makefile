# The vocabulary of this repository. CI and people call the same targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
GO ?= go
BIN := bin
# Kubernetes components tell their version only when the linker fills it in.
KUBE_VERSION := $(shell $(GO) list -m -f '{{.Version}}' k8s.io/kubernetes 2>/dev/null)
LDFLAGS := -X k8s.io/component-base/version.gitVersion=$(KUBE_VERSION) -X k8s.io/client-go/pkg/version.gitVersion=$(KUBE_VERSION)
# Packages that compile neither the API server nor the EC2 SDK: the quick loop and the race tests.
QUICK := ./plugins/... ./provisioner/... ./disruption/...
RACE := ./provisioner/requirement/... ./provisioner/resources/... ./provisioner/catalog/... ./provisioner/cluster/... \
	./provisioner/solver/... ./provisioner/promise/... ./provisioner/state/... ./provisioner/batch/... ./provisioner/launch/... \
	./provisioner/lifecycle/... ./provisioner/nodepool/... ./provisioner/events/... ./disruption/... ./interruption/...
FUZZTIME ?= 10s
CASES ?= cmd/berth-local/cases/testdata

.PHONY: help
help: ## Print this list.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build berth, berth-scheduler, berth-local and kubectl into bin/.
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/berth ./cmd/berth-scheduler ./cmd/berth-local ./cmd/kubectl

.PHONY: kubectl
kubectl: ## Build bin/kubectl from this module.
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/kubectl ./cmd/kubectl

.PHONY: demo
demo: ## Run the main job end to end on a local control plane and a simulated EC2.
	$(GO) run -ldflags '$(LDFLAGS)' ./cmd/berth-local demo

.PHONY: local
local: ## Start the all-in-one cluster; ends on Ctrl-C.
	$(GO) run -ldflags '$(LDFLAGS)' ./cmd/berth-local up

.PHONY: test
test: ## Run the whole test suite, race tests included.
	$(GO) test -shuffle=on -timeout 25m ./...
	$(MAKE) race

.PHONY: quick
quick: ## Run the tests of the quick loop.
	$(GO) test ./plugins/... ./provisioner/...

.PHONY: race
race: ## Run the race detector over everything that compiles neither the API server nor the EC2 SDK.
	$(GO) test -race -shuffle=on -timeout 20m $(RACE)

.PHONY: lint
lint: ## Run golangci-lint with the import order of the layers.
	hack/lint.sh

.PHONY: generate
generate: ## Regenerate deepcopy code, clients, CRDs and manifests/install.yaml.
	hack/update-codegen.sh
	hack/update-install.sh

.PHONY: verify
verify: ## Fail when generated files, formatting or go.mod are not current.
	hack/verify-codegen.sh
	hack/verify-format.sh
	hack/verify-install.sh

.PHONY: bench
bench: ## Run the Go benchmarks of the hot paths (benchstat format).
	$(GO) test -run '^$$' -bench . -benchmem $(QUICK)

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME.
	hack/fuzz.sh $(FUZZTIME)

.PHONY: long
long: ## Run the long random tests (hours) and write their figures to hack/results.
	hack/long.sh

.PHONY: cases
cases: ## Run every case file in CASES end to end.
	$(GO) run -ldflags '$(LDFLAGS)' ./cmd/berth-local cases $(CASES)
