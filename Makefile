# gpu-exporter. `make help` lists what there is. Needs Go and gcc; `make check` says what else it needs.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# The time that what is built bears.
EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
VERSION_PKG := github.com/prometheus/common/version
# The NVML symbols are bound when they are first called (an old driver lacks the newer ones): lazy binding
# also where a distribution's compiler defaults to -z now.
LDFLAGS := -s -w -X $(VERSION_PKG).Version=$(VERSION) -X $(VERSION_PKG).Revision=$(REVISION) '-extldflags=-Wl,-z,lazy'
# The version is stamped above; what Go would add of the working tree makes equal sources unequal binaries.
BUILDFLAGS := -trimpath -buildvcs=false
# NVML's header marks calls deprecated that older drivers still need.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations

LISTEN ?= 127.0.0.1:10835
SCENARIO ?= testdata/scenarios/demo.scenario
PODS ?= testdata/kubelet/demo.pods
# The demo's database, its evaluator of rules and its simulated fleet; DATABASE= leaves them out.
DATABASE ?= 127.0.0.1:8428
RULES ?= 127.0.0.1:8880
FLEET_LISTEN ?= 127.0.0.1:10836
# Where `make preview` serves the dashboards.
PREVIEW ?= 127.0.0.1:8429
# How long the demo runs: FOR=30s; empty, until Ctrl-C.
FOR ?=
# What of `make test` to run: PKG=./podmap RUN=TestName
PKG ?= ./...
RUN ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/gpu-exporter and bin/gpu-report
	go build $(BUILDFLAGS) -ldflags "$(LDFLAGS)" -o bin/gpu-exporter ./cmd/exporter
	CGO_ENABLED=0 go build $(BUILDFLAGS) -ldflags "$(LDFLAGS)" -o bin/gpu-report ./cmd/report

.PHONY: demo
demo: build ## the exporter on a fake driver with eight cards, and a database with rules and history beside it; FOR=3m stops it
	go build -o bin/standin ./cmd/standin
	@bin/standin --scenario=$(SCENARIO) --pods=$(PODS) --for=$(or $(FOR),0s) $(if $(DATABASE),--database=$(DATABASE) --rules=$(RULES) --fleet=$(FLEET_LISTEN)) -- bin/gpu-exporter --node-name=gpu-node-1 --web.listen-address=$(LISTEN)

.PHONY: fleet
fleet: ## many simulated nodes to scrape; NODES=2000, else the small demo; FOR=30s stops it
	go build -o bin/standin ./cmd/standin
	@bin/standin fleet $(if $(NODES),--nodes=$(NODES),--preset=demo) --listen=$(FLEET_LISTEN) --for=$(or $(FOR),0s)

.PHONY: preview
preview: ## the dashboards drawn without Grafana from the database of a running `make demo`
	go -C test run ./preview --url http://$(DATABASE) --boards ../dashboards --serve $(PREVIEW)

.PHONY: run
run: build ## the exporter on this machine's own cards
	bin/gpu-exporter --web.listen-address=$(LISTEN)

.PHONY: test
test: ## all tests that need Go and gcc alone, race detector on
	go vet ./...
	go test -race -timeout 10m $(if $(RUN),-run '$(RUN)') $(PKG)

.PHONY: generate
generate: ## write the generated files (docs, goldens); review the diff
	go test ./cmd/exporter -run 'TestGolden$$|TestCompatGolden$$|TestDrift$$' -update
	go test ./internal/catalog ./internal/catalog/compat ./podmap ./dashboards ./alerts ./deploy/helm ./report/render -run Generated -update
	$(MAKE) licences

.PHONY: chart
chart: generate ## render the chart's goldens and the Kustomize manifests; review the diff
	go -C test test ./deploy -run 'TestGolden$$|TestKustomizeGenerated' -update

# The image's architectures; another than this machine's is built with Debian's cross compiler (gcc-aarch64-linux-gnu).
HOST_ARCH := $(shell go env GOHOSTARCH)
IMAGE_ARCHS ?= $(HOST_ARCH)
CROSS := amd64=x86_64-linux-gnu-gcc arm64=aarch64-linux-gnu-gcc

.PHONY: binaries
binaries: $(IMAGE_ARCHS:%=bin/%/gpu-exporter) $(IMAGE_ARCHS:%=bin/%/gpu-report) ## build bin/ARCH/gpu-exporter and gpu-report for IMAGE_ARCHS="amd64 arm64"

.PHONY: FORCE
bin/%/gpu-exporter: FORCE
	CGO_ENABLED=1 GOARCH=$* CC=$(or $(patsubst $*=%,%,$(filter $*=%,$(if $(filter $*,$(HOST_ARCH)),,$(CROSS)))),gcc) go build $(BUILDFLAGS) -ldflags "$(LDFLAGS)" -o $@ ./cmd/exporter

bin/%/gpu-report: FORCE
	CGO_ENABLED=0 GOARCH=$* go build $(BUILDFLAGS) -ldflags "$(LDFLAGS)" -o $@ ./cmd/report

# The licences of what is linked into the programs; their modules are those of every architecture.
bin/THIRD_PARTY_NOTICES: build
	go -C tools/licences build -o ../../bin/licences .
	bin/licences --notices=$@ bin/gpu-exporter bin/gpu-report

.PHONY: licences
licences: bin/THIRD_PARTY_NOTICES ## write docs/licences.md from what is linked into the programs
	bin/licences --page=docs/licences.md bin/gpu-exporter bin/gpu-report

.PHONY: image
image: binaries bin/THIRD_PARTY_NOTICES ## the container image as an OCI layout in bin/image, and its SBOM; IMAGE_ARCHS="amd64 arm64"
	go -C tools/image build -o ../../bin/mkimage .
	bin/mkimage --version=$(VERSION) --revision=$(REVISION) --epoch=$(EPOCH) $(foreach a,$(IMAGE_ARCHS),--binary=$(a)=bin/$(a)/gpu-exporter --report=$(a)=bin/$(a)/gpu-report)

.PHONY: image-lock
image-lock: ## pin the newest Debian packages for the image
	go -C tools/image build -o ../../bin/mkimage .
	bin/mkimage --newest

.PHONY: packages
packages: binaries build bin/THIRD_PARTY_NOTICES ## the deb and the rpm in bin/packages; IMAGE_ARCHS="amd64 arm64"
	go -C tools/nfpm build -o ../../bin/nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm
	deploy/packages/build '$(VERSION)' $(EPOCH) $(IMAGE_ARCHS)

# What a release consists of, and for what: all that this machine has a compiler for.
RELEASE_PARTS ?= programs image packages chart boards
RELEASE_ARCHS ?= $(HOST_ARCH) $(foreach c,$(filter-out $(HOST_ARCH)=%,$(CROSS)),$(if $(shell command -v $(lastword $(subst =, ,$(c)))),$(firstword $(subst =, ,$(c)))))
.PHONY: release
release: bin/THIRD_PARTY_NOTICES ## everything that a release consists of, and its checksums, in bin/release
	$(MAKE) binaries $(filter image packages,$(RELEASE_PARTS)) IMAGE_ARCHS="$(strip $(RELEASE_ARCHS))"
	deploy/release '$(VERSION)' '$(EPOCH)' '$(strip $(RELEASE_ARCHS))' '$(RELEASE_PARTS)'

# A revision to measure beside this one: AGAINST=v0.1.0
AGAINST ?=
.PHONY: bench
bench: ## measure the exporter and write docs/performance.md, a quarter of an hour; AGAINST=v0.1.0 measures that beside it
	go -C test build -o ../bin/bench ./bench
	bin/bench -root=. -out=docs/performance.md $(if $(AGAINST),-against=$(AGAINST))

# Flags of the scale run, see bin/scale --help: SCALE='--split=node', SCALE=--continue, SCALE=--from=tmp/scale.json
SCALE ?=
scale_nodes := 500,1000,2000
scale_for := 8m,8m,20m
.PHONY: scale
scale: ## fleets on one Prometheus and on several, measured for 1.5 h, and docs/performance-fleet.md; NODES=500,2000 FOR=8m,20m SERVERS=3
	go -C test build -o ../bin/scale ./scale
	@mkdir -p tmp
	bin/scale --root=. --nodes=$(or $(NODES),$(scale_nodes)) --for=$(or $(FOR),$(scale_for)) --servers=$(or $(SERVERS),3) --figures=tmp/scale.json --out=docs/performance-fleet.md $(SCALE)

# Flags of hwcheck: HWCHECK='--card=1 --window=2m'
HWCHECK ?=
.PHONY: hwcheck
hwcheck: build ## hold the exporter against this machine's own card and nvidia-smi; writes docs/hardware/
	go -C test build -o ../bin/hwcheck ./hwcheck
	bin/hwcheck $(HWCHECK)

# Production traces, which are not part of the project: the folder that holds them.
DATA ?=
.PHONY: report-traces
report-traces: build ## gpu-report over two production traces: DATA=FOLDER with fleet-2023 and genai-2026
	@[ -n "$(DATA)" ] || { echo "DATA=FOLDER names the folder with fleet-2023 and genai-2026"; exit 1; }
	go -C tools/prometheus build -tags remove_all_sd -o ../../bin/prometheus github.com/prometheus/prometheus/cmd/prometheus
	go -C test build -o ../bin/traces ./report/traces
	bin/traces -data="$(DATA)"

.PHONY: load
load: ## the real binary under load for minutes, its figures as a table; the short form is in `make check`
	LOAD=$(or $(FOR),20s) go -C test test -count=1 -v -timeout 20m ./load

# Which targets `make fuzz` fuzzes: ONLY=podmap.FuzzDecode, a regular expression.
ONLY ?=
.PHONY: fuzz
fuzz: ## every fuzz target for a while, from all that was found before; FOR=5m each, ONLY=podmap; a short form is in `make check`
	go -C test run ./fuzz -for=$(or $(FOR),10s) -run='$(ONLY)'

.PHONY: lint
lint: ## gofmt, and golangci-lint (built from tools/) of every module
	@unformatted=$$(gofmt -l alerts cmd collector dashboards deploy internal podmap report test tools/image tools/licences tools/kubernetes); [ -z "$$unformatted" ] || { echo "not as gofmt writes it:"; echo "$$unformatted"; exit 1; }
	go build -modfile=tools/go.mod -o bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@for module in . test test/kubelet test/apiserver tools/image tools/licences tools/kubernetes; do \
	  echo "golangci-lint of $$module"; (cd $$module && $(CURDIR)/bin/golangci-lint run --config=$(CURDIR)/.golangci.yml) || exit 1; done

.PHONY: chromium
chromium: ## install the browser that `make check` looks at the pages with
	@command -v chromium chromium-browser google-chrome >/dev/null || { echo "installing chromium"; \
	  as=$$([ $$(id -u) = 0 ] || echo sudo -n); $$as apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$as apt-get install -y -qq chromium >/dev/null; }

.PHONY: checkers
checkers:
	@command -v rpm >/dev/null && command -v systemd-analyze >/dev/null && command -v groff >/dev/null || { echo "installing rpm, systemd and groff, to look at the packages, the unit and the manual"; \
	  as=$$([ $$(id -u) = 0 ] || echo sudo -n); $$as apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$as apt-get install -y -qq rpm systemd groff-base >/dev/null; }

.PHONY: strace
strace: ## install the tracer of system calls with which `make check` sees what the exporter opens
	@command -v strace >/dev/null || { echo "installing strace"; \
	  as=$$([ $$(id -u) = 0 ] || echo sudo -n); $$as apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$as apt-get install -y -qq strace >/dev/null; }

.PHONY: vuln
vuln: build ## ask Go's database of vulnerabilities about what is in the binary; needs vuln.go.dev
	go -C tools/govulncheck build -o ../../bin/govulncheck golang.org/x/vuln/cmd/govulncheck
	@out=$$(bin/govulncheck -mode=binary bin/gpu-exporter 2>&1) && code=0 || code=$$?; echo "$$out"; case "$$code $$out" in \
	  0*) ;; \
	  *"fetching vulnerabilities"*) echo; echo "NOT CHECKED: the database of vulnerabilities at vuln.go.dev was not reached. Nothing is known, which is not the same as nothing found."; exit 1;; \
	  *) exit $$code;; esac

.PHONY: tools
tools: chromium checkers strace ## build ahead what `make check` runs: linter, Prometheus, VictoriaMetrics, helm and their like; minutes, once
	go -C tools build -o ../bin/ tool
	go -C tools/prometheus build -tags remove_all_sd -o ../../bin/ tool
	go -C tools/victoriametrics build -o ../../bin/ tool
	go -C tools/helm build -o ../../bin/ tool
	go -C tools/nfpm build -o ../../bin/ tool
	go -C tools/kubernetes build -o ../../bin/admit .
	go -C test/kubelet build -o ../../bin/kubelet-1.36 .
	go -C test test -run '^$$' ./... >/dev/null

.PHONY: check
check: lint chromium checkers strace ## what needs more than Go and gcc: lint, promtool, a real Prometheus (built from tools/), a browser, packages, system calls
	@# Most tests wait for time to pass: those that compute, and the fuzz targets after them, have what they leave, and are told of
	@# behind them.
	@mkdir -p bin; \
	  { code=0; GOGC=400 nice -n 19 go -C test test -count=1 -p 1 -timeout 25m ./report/... ./rules || code=$$?; \
	    nice -n 19 go -C test run ./fuzz -for=1s -fresh || code=$$?; exit $$code; } >bin/computing.log 2>&1 & computing=$$!; code=0; \
	  go -C test test -count=1 -p 1 -timeout 25m $$(go -C test list ./... | grep -v '/test/report\|/test/rules$$') || code=$$?; \
	  wait $$computing || code=$$?; cat bin/computing.log; exit $$code

.PHONY: check-kubelet
check-kubelet: ## the client of the kubelet against the server of Kubernetes itself, 1.34 and 1.36; also in `make check`
	go -C test test -count=1 ./podresources

# The release of Kubernetes that check-apiserver builds: 1.36 or 1.34. RUN=TestName, too.
KUBERNETES ?= 1.36
.PHONY: check-apiserver
check-apiserver: ## what deploy/ installs against a real control plane: minutes to build, once; KUBERNETES=1.34 RUN=TestName
	go -C test/apiserver vet .
	KUBERNETES=$(KUBERNETES) go -C test/apiserver test -count=1 -timeout 60m $(if $(RUN),-run '$(RUN)') .

.PHONY: check-cross
check-cross: ## make the image of arm64 with Debian's cross compiler, and start it under qemu; not in `make check`
	@command -v qemu-aarch64 >/dev/null && command -v aarch64-linux-gnu-gcc >/dev/null || { echo "installing the cross compiler and qemu"; \
	  as=$$([ $$(id -u) = 0 ] || echo sudo -n); $$as apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$as apt-get install -y -qq --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user >/dev/null; }
	go -C test test -count=1 -tags arm64image -run TestImageOfArm64 ./deploy

.PHONY: pictures
pictures: chromium ## write the pictures of the documentation; those of the boards need a running `make demo`
	go -C test test ./browser -run 'TestNodePage|TestPageWith' -update
	go -C test run ./preview --url http://$(DATABASE) --boards ../dashboards --out ../bin/preview --pictures ../docs/images \
	  --var gpu-node/node=main-h100-0001 --var gpu-card/node=main-h100-0001

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
