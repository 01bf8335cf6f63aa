# gpu-exporter. `make help` lists the targets. Needs Go and gcc; `make check` installs what else it needs.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# NVML's header marks calls deprecated that older drivers still need.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations
# Stamped into what is built; default: the chart's version, the checked out commit and its time.
export VERSION REVISION SOURCE_DATE_EPOCH

# Architectures to build for: ARCHS="amd64 arm64"; arm64 takes Debian's gcc-aarch64-linux-gnu.
ARCHS ?= $(shell go env GOHOSTARCH)
# Addresses and inputs of the demo; an empty DATABASE starts the exporter alone. FOR=30s stops it; empty: until Ctrl-C.
LISTEN ?= 127.0.0.1:10835
SCENARIO ?= testdata/scenarios/demo.scenario
PODS ?= testdata/kubelet/demo.pods
DATABASE ?= 127.0.0.1:8428
RULES ?= 127.0.0.1:8880
FLEET_LISTEN ?= 127.0.0.1:10836
FOR ?=
# What `make test` runs: PKG=./podmap RUN=TestName
PKG ?= ./...
RUN ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/gpu-exporter, bin/gpu-report and bin/gpu-migrate
	deploy/build

.PHONY: run
run: build ## run the exporter on this machine's GPUs
	bin/gpu-exporter --web.listen-address=$(LISTEN)

.PHONY: demo
demo: build ## run the exporter on a simulated node with eight GPUs, with a database, rules and history; FOR=3m stops it
	go build -o bin/standin ./cmd/standin
	@bin/standin --scenario=$(SCENARIO) --pods=$(PODS) --for=$(or $(FOR),0s) $(if $(DATABASE),--database=$(DATABASE) --rules=$(RULES) --fleet=$(FLEET_LISTEN)) -- bin/gpu-exporter --node-name=gpu-node-1 --web.listen-address=$(LISTEN)

.PHONY: fleet
fleet: ## simulate many nodes to scrape: the small demo, or NODES=2000; FOR=30s stops it
	go build -o bin/standin ./cmd/standin
	@bin/standin fleet $(if $(NODES),--nodes=$(NODES),--preset=demo) --listen=$(FLEET_LISTEN) --for=$(or $(FOR),0s)

.PHONY: preview
preview: ## show the dashboards without Grafana, with the data of a running `make demo`
	go -C test run ./preview --url=http://$(DATABASE) --listen=127.0.0.1:8429

.PHONY: test
test: ## run the tests that need Go and gcc alone, with the race detector; PKG=./podmap RUN=TestName
	go vet ./...
	GORACE=atexit_sleep_ms=0 go test -race -vet=off -timeout 15m $(if $(RUN),-run '$(RUN)') $(PKG)

.PHONY: generate
generate: ## write all generated files and goldens; review the diff
	tools/generate

.PHONY: lint
lint: ## run gofmt, golangci-lint and deadcode on every module, and Vale on the prose
	tools/lint/run

.PHONY: check
check: ## run the tests that need more: a real Prometheus, a browser, packages, charts, system calls; installs tools first, minutes, once
	tools/install
	tools/lint/run
	test/run

.PHONY: check-cluster
check-cluster: ## as root, install into a real Kubernetes of two nodes, built once in 25 min; KUBERNETES=1.36 or 1.34 takes that release
	test/cluster/run

.PHONY: fuzz
fuzz: ## run every fuzz target for FOR=10s; ONLY=FuzzDecode or another regular expression runs those
	test/fuzz $(or $(FOR),10s) '$(ONLY)'

.PHONY: vuln
vuln: build ## look up known vulnerabilities of what is linked into the programs, at vuln.go.dev; VULNDB=vulndb.zip, a copy of its database, needs no network
	tools/vuln bin/gpu-exporter bin/gpu-report bin/gpu-migrate

.PHONY: bench
bench: ## measure the exporter for a quarter of an hour and write docs/evidence/performance.md; AGAINST=v0.1.0 compares with that revision, BESIDE=PROGRAM with nvidia_gpu_exporter
	go -C test build -o ../bin/measure ./measure
	bin/measure bench $(if $(AGAINST),--against=$(AGAINST)) $(if $(BESIDE),--beside=$(BESIDE))

.PHONY: scale
scale: ## measure Prometheus with fleets of 500 to 2000 nodes for 1.5 h and write docs/evidence/performance-fleet.md; SCALE="--nodes=500 --period=8m"
	go -C test build -o ../bin/measure ./measure
	bin/measure scale $(SCALE)

.PHONY: hwcheck
hwcheck: build ## as root, check what the exporter claims on this machine's GPU and write docs/evidence/hardware/; HWCHECK='--period=2m'
	go -C test build -o ../bin/measure ./measure
	bin/measure hwcheck $(HWCHECK)

.PHONY: hwcheck-bundle
hwcheck-bundle: ## make the hardware check in one file, for machines with nothing but the driver, in bin/; ARCHS="amd64 arm64"
	deploy/hwcheck/build $(ARCHS)

.PHONY: image
image: ## make the container image in bin/image, an OCI layout, without a container runtime; ARCHS="amd64 arm64"
	deploy/image --check $(ARCHS)
	deploy/build $(ARCHS)
	deploy/notices
	deploy/image $(ARCHS)

.PHONY: packages
packages: ## make the deb and the rpm in bin/packages; ARCHS="amd64 arm64"
	deploy/build $(ARCHS)
	deploy/notices
	deploy/packages/build $(ARCHS)

.PHONY: release
release: ## make a release in bin/release: programs (some for macOS and Windows too), images, packages, chart, dashboards and rules, SBOMs and checksums
	deploy/release

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
