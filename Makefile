# msb: `make run` and `make test` are all a newcomer needs. `make help` lists the rest.

SHELL := /bin/bash
GO ?= go
FUZZTIME ?= 30s
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
# Linters, tests and what they build compile as the build does: each takes from the cache what another one compiled.
export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath
# A scripted caller (CI, a pipe) gets every `go test` line; a person at a terminal gets them as well.
# Half an hour for a package: a busy machine takes ten times as long as an idle one.
# Vet runs with the linters, and nothing debugs these programs.
GOTEST_FLAGS := -count=1 -timeout 30m -vet=off -ldflags=-w
GOTEST := $(GO) test $(GOTEST_FLAGS)

.PHONY: help run test test-quick build setup lint test-fast test-differential test-vm test-clock probe-confinement record-calls test-cross fuzz bench bench-boot bench-net bench-ports bench-life bench-dns bench-proxy bench-latency bench-capture bench-mcp generate mcpb clean test-oracle test-memory

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

run: setup build ## set up what is missing, then run the command of policy.toml in a microVM
	@bin/msb run --trust --policy policy.toml

test-quick: guest ## in an edit loop: vet everything, test the packages that differ from upstream, without the race detector
	@scripts/test-quick

test: setup-test build lint test-fast test-cross test-vm ## set up what is missing, then pass every test (fast ones first)

build: guest ## build bin/msb with the guest parts inside
	@$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/msb ./cmd/msb

.PHONY: guest setup-test setup-bench
guest:
	@internal/guest/build.sh

setup: ## install missing system packages, libkrun and the guest kernel
	@scripts/setup

setup-test:
	@scripts/setup --test

setup-bench:
	@scripts/setup --bench

bin/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	@echo "building golangci-lint (once)"
	@$(GO) build -C tools/lint -o $(CURDIR)/bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# Words of nobody else, for which the field has a term: directory, detach, truncated, retired.
PRIVATE_WORDS := \b[Ff]olders?\b|[Oo]utgr[eo]w|[Aa]ppoint(s|ed)?\b|knownAs|lifeBefore|nameBook|[Cc]ut[Ss]hort|goesOn|obeySwitch|(is|are) seen to |for what it is|[Dd]eparted|where nobody is|an answer that is none

# Compiled without a directory's name in it, what cgo makes of a file would be taken from the cache of another checkout, where
# linters look for its source.
lint: export CGO_CFLAGS := $(shell $(GO) env CGO_CFLAGS) -I$(CURDIR)
# Memory for time: a fifth less of it.
lint: export GOGC = 400
lint: export GOMEMLIMIT = 4GiB
lint: bin/golangci-lint ## golangci-lint with the house rules and the layers of imports
	@bin/golangci-lint run ./...
	@! git grep -nE "$(PRIVATE_WORDS)" -- "*.go" || { echo "write the field's term: directory, detach, truncated, malformed …"; exit 1; }
	@cd bench/report && ../../bin/golangci-lint run ./...
	@cd shim && ../bin/golangci-lint run --build-tags containerdtest,kubernetestest ./...
	@cd deploy && ../bin/golangci-lint run --disable staticcheck,contextcheck ./... # one file of tests, which reads all of Helm and Kubernetes otherwise
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt these files:"; gofmt -l $$(git ls-files '*.go'); exit 1; }

# The tests of these packages boot machines; elsewhere such tests have the build tag vmtest.
VMM := ./internal/vm/qemu ./internal/vm/krun

# Begun first, so that no processor is idle at the end.
SLOW := ./secretproxy ./sandbox ./mcp ./gateway ./image ./netstack

# No goroutine of their own, and most of a test's time is theirs, which the detector makes six times as long. Their callers
# (secretproxy, gateway, sandbox) are tested with it.
PURE := ./docs ./egress/probe ./egress/session ./policies/... ./review ./secretproxy/mask

# Without the detector in them: they compute and share nothing between goroutines, and took half of the time of ./sandbox.
COMPUTING := compress/flate crypto/ecdh crypto/internal/fips140/mlkem crypto/internal/fips140/sha3 crypto/internal/fips140/edwards25519/...
RACE := -race $(COMPUTING:%=-gcflags=%=-race=false)

# Each test of cmd/msb starts msb many times, which takes six times as long with the detector; what msb does is tested with
# it in the packages that do it.
# A program with the detector sleeps a second before it ends, in case a race comes late; tests start hundreds of such programs.
test-fast: export GORACE = atexit_sleep_ms=10
# Beside the slow packages: those without the detector, the modules of their own, and TestI11_IdleFlowsAreSmall, which looks
# at memory and would see the detector's.
test-fast: ## every test that needs no virtual machine, with the race detector
	(failed=0; \
	$(GOTEST) ./cmd/msb $(PURE) || failed=1; \
	$(GO) -C bench/report test $(GOTEST_FLAGS) ./... || failed=1; \
	$(GO) -C shim test $(GOTEST_FLAGS) $(RACE) ./... || failed=1; \
	$(GO) -C deploy test $(GOTEST_FLAGS) ./... || failed=1; \
	$(GOTEST) -run '^TestI11_IdleFlowsAreSmall$$' ./netstack || failed=1; \
	exit $$failed) & beside=$$!; \
	$(GOTEST) $(RACE) $(SLOW) $$(comm -23 <($(GO) list ./... | grep -v -E '/internal/vm/(qemu|krun)$$|/cmd/msb$$' | sort) <($(GO) list $(PURE) | sort)); others=$$?; \
	wait $$beside && exit $$others

test-differential: ## random clients on random policies: the gateway and the review must agree (60 s)
	MSB_DIFFERENTIAL=60s $(GOTEST) ./review -run 'TestI16_Random' -count 1

.PHONY: test-faults
FAULTS ?= all
test-faults: guest ## a fault at each step of each verb that writes state, and every two verbs at once (an hour); FAULTS=start,stop: of these
	MSB_TEST_FAULTS=$(FAULTS) $(GOTEST) -v -timeout 3h ./sandbox -run '^TestI13_(FaultsAtEveryStepLoseNothing|ConcurrentVerbsAreSerialised|KilledRestoresLeaveOneInstant)$$'

# Four at a time, the longest first: an emulated host takes one processor, most others wait for a part of their time.
# The last line tells how often an emulated host, or a sandbox in one, had to be started again.
VM_WAITING := ^TestVM(Lifetimes|DamagedCachesAreHealed|SDKIsAModule|OtherServersRunInside|RestartsOfACommand|CrashedGuestsRestart|ServicesComeBack)$$
VM_TESTS := vm-krun vm-msb vm-sandbox vm-msb-hosts vm-msb-first vm-msb-waiting vm-qemu vm-agentd
GOTEST_VM := $(GOTEST) -tags vmtest -p 1 -timeout 25m
.PHONY: $(VM_TESTS)
test-vm: export MSB_TEST_RETRIES = $(CURDIR)/bin/vm-retries
test-vm: ## the tests that boot real guests (QEMU emulation, libkrun inside an emulated host)
	@mkdir -p bin && : > $$MSB_TEST_RETRIES
	@$(MAKE) --no-print-directory -k -j 4 $(VM_TESTS)
	@cat $$MSB_TEST_RETRIES; echo "test-vm: $$(wc -l < $$MSB_TEST_RETRIES) retries of emulated hosts"

vm-krun:
	$(GOTEST) ./internal/vm/krun
vm-msb:
	$(GOTEST_VM) -run '^TestVM' -skip '^TestVM[A-D]|$(VM_WAITING)' ./cmd/msb
vm-sandbox:
	$(GOTEST_VM) -run 'VM' ./sandbox
vm-msb-hosts:
	$(GOTEST_VM) -run 'VM' -skip '^TestVM' ./cmd/msb
vm-msb-first:
	$(GOTEST_VM) -run '^TestVM[A-D]' -skip '$(VM_WAITING)' ./cmd/msb
vm-msb-waiting:
	$(GOTEST_VM) -run '$(VM_WAITING)' ./cmd/msb
vm-qemu:
	$(GOTEST) ./internal/vm/qemu
vm-agentd:
	$(GOTEST_VM) -run 'VM' ./agentd

.PHONY: test-tools
test-tools: guest ## tsc and vite in their watch modes, and cargo, in a directory of the host (root; some minutes)
	MSB_TEST_TOOLS=$$(scripts/tools-image) $(GOTEST_VM) -run '^TestToolsIn' -v ./cmd/msb

.PHONY: shim node-image test-containerd
shim: guest ## build bin/containerd-shim-msb-v1, the shim by which containerd runs pods in microVMs
	@$(GO) -C shim build -trimpath -ldflags '-s -w -X github.com/containerd/containerd/v2/version.Version=$(VERSION)' -o ../bin/ ./cmd/containerd-shim-msb-v1

node-image: shim build ## pack bin/msb-node.tar, the image of the DaemonSet that installs msb on nodes (deploy/)
	@CGO_ENABLED=0 $(GO) -C shim build -trimpath -ldflags '-s -w' -o ../bin/ ./cmd/msb-node
	@$(GO) run ./packaging/nodeimage -tag msb-node:$(VERSION)

test-containerd: shim ## a real containerd runs containers with the shim, beside runc (root)
	MSB_TEST_CONTAINERD=$$(scripts/containerd) MSB_TEST_SHIM=$(CURDIR)/bin $(GO) -C shim test $(GOTEST_FLAGS) -tags containerdtest -run '^TestContainerd' ./...

.PHONY: test-kubernetes
test-kubernetes: shim node-image ## a Kubernetes of one node, built from source once, runs pods with the shim (root; 20 minutes)
	MSB_TEST_KUBERNETES=$$(scripts/kubernetes) MSB_TEST_COREDNS=$$(scripts/coredns) MSB_TEST_ADDONS=$$(scripts/addons) MSB_TEST_CONTAINERD=$$(scripts/containerd) MSB_TEST_SHIM=$(CURDIR)/bin $(GO) -C shim test $(GOTEST_FLAGS) -timeout 2h -tags containerdtest,kubernetestest -run '^TestKubernetes$$' -v ./

.PHONY: test-nodeconformance
test-nodeconformance: shim ## 40 tests of Kubernetes' own node conformance in that cluster, in pods of runc and of msb; CONFORMANCE_FLAGS=-full: all 250 (root; 40 minutes)
	TMPDIR=/var/tmp MSB_TEST_KUBERNETES=$$(scripts/kubernetes) MSB_TEST_CONTAINERD=$$(scripts/containerd) MSB_TEST_SHIM=$(CURDIR)/bin $(GO) -C shim test $(GOTEST_FLAGS) -timeout 4h -tags containerdtest,kubernetestest -run '^TestNodeConformance$$' -v ./ $(CONFORMANCE_FLAGS)

test-clock: ## look at the clocks of 50 guests under emulation, on a quiet machine and on a loaded one
	$(GOTEST) -timeout 30m ./internal/vm/qemu -run '^TestClockKeepsTime$$' -v -clock-boots 25
	$(GOTEST) -timeout 30m ./internal/vm/qemu -run '^TestClockKeepsTime$$' -v -clock-boots 25 -clock-load

.PHONY: test-conformance
test-conformance: setup-test guest ## the MCP conformance suite against our HTTP layer and msb itself (2 minutes)
	$(GOTEST) -v -tags conformance -run Conformance ./mcp

test-oracle: ## 200,000 pairs of conversations in which a guest guesses at a secret's value: none may differ; 100,000 spellings of values: none may show
	MSB_ORACLE_PAIRS=200000 $(GOTEST) -v -timeout 60m -run TestI17_GuessesShowNothing ./secretproxy/mask
	MSB_ORACLE_PAIRS=200000 $(GOTEST) -v -timeout 60m -run TestI17_AnswersToGuessesAreAlike ./secretproxy
	MSB_SPELLINGS=100000 $(GOTEST) -v -timeout 60m -run TestI10_I17_NoSpelling ./secretproxy/mask

test-memory: ## what one sandbox can make the proxy hold, at the size of the attacks, seen in the heap
	MSB_TEST_MEMORY=1 $(GOTEST) -v -run 'TestI11_TheHeapIsBounded' ./secretproxy

probe-confinement: ## let a program in the VMM's place try its ways out, with and without namespaces and filter
	$(GOTEST) -v ./internal/vm/runner -run '^TestI8_'

record-calls: ## print every system call of full lives of guests on QEMU and libkrun, and look for those that the filter refuses
	MSB_RECORD_CALLS=missing $(GOTEST) -v -timeout 30m $(VMM) -run '^TestI8_FullLifeNeedsNoOtherCall$$'
	MSB_RECORD_CALLS=all $(GOTEST) -v -timeout 30m $(VMM) -run '^TestI8_FullLifeNeedsNoOtherCall$$'

test-cross: ## check the types of what other systems compile, and this one without C
	@$(GO) build -C tools/lint -o $(CURDIR)/bin/typecheck ./typecheck
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 bin/typecheck .
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 bin/typecheck .
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 GOFLAGS=-tags=containerdtest,kubernetestest bin/typecheck shim
	CGO_ENABLED=0 bin/typecheck .

fuzz: ## run every fuzz target for FUZZTIME (30s)
	@scripts/fuzz $(FUZZTIME)

bin/gvproxy: bench/peers/go.mod
	@$(GO) build -C bench/peers -o $(CURDIR)/bin/gvproxy github.com/containers/gvisor-tap-vsock/cmd/gvproxy

bench-boot: setup-bench build ## cold start, exec round trip, copies and host directories, beside microsandbox
	@scripts/bench-boot

bench-net: setup-bench bin/gvproxy ## throughput and latency of the link, beside gvproxy, slirp4netns and a kernel relay (root)
	@$(GO) run ./bench/net -gvproxy bin/gvproxy

bench-ports: setup-bench bin/gvproxy ## published ports, beside gvproxy and QEMU's hostfwd (root)
	@$(GO) run ./bench/ports -gvproxy bin/gvproxy -qemu qemu-system-x86_64

bench-life: bench-programs ## what lasts: published ports, 50 sandboxes at once, msb ls of 10,000, clones of 1 GiB, ssh (root, 20 minutes): prints tables
	@$(GO) -C bench/report run . -root $(CURDIR) -only '^(ports|sandboxes|life)$$'

bench-dns: setup-bench bin/gvproxy ## the resolver, beside dnsmasq, a bare server and gvproxy (root)
	@$(GO) run ./bench/dns -gvproxy bin/gvproxy

bench-proxy: setup-bench ## the inspecting proxy, beside a bare reverse proxy and mitmproxy; BEFORE=COMMIT: eight rounds beside that commit's
ifdef BEFORE
	@rm -rf bin/before && mkdir -p bin/before && git archive $(BEFORE) | tar -x -C bin/before
	@$(GO) build -C bin/before -o bench-proxy ./bench/proxy
	@$(GO) run ./bench/proxy -quick -rounds 8 -before bin/before/bench-proxy
else
	@$(GO) run ./bench/proxy
endif

.PHONY: bench-guest
bench-guest: setup-bench build ## a name and a request with a secret inside a guest, beside QEMU's user network (root)
	@CGO_ENABLED=0 $(GO) build -o bin/bench/ ./bench/guest # it runs in the guest too, where there are no libraries
	@bin/bench/guest

bench-latency: ## what masking adds to the way of each message of live streams, p50 and p99
	MSB_LATENCY=3000 $(GOTEST) -v -run TestMaskingDelaysNoMessage ./secretproxy

bench-capture: setup-bench build ## what a capture costs bulk transfers through the gateway (root)
	@$(GO) run ./bench/capture

bench-mcp: setup-bench ## msb mcp: tools/list, start, memory and calls, beside microsandbox's MCP server
	@scripts/bench-mcp

bench-work: ## commands, copies and host directories beside the guest's own disk: git, npm and go too (beside microsandbox: scripts/bench-boot -only work)
	@scripts/bench-work

bench-growth: setup-bench build ## what judgements cost under 10 to 100,000 rules, and reviews of longer and longer captures, beside tshark
	@$(GO) run ./bench/growth

SOAK_ROUNDS ?= 300
.PHONY: soak
soak: setup-bench build ## SOAK_ROUNDS (300) rounds of create, exec, copy, publish, snapshot, clone, remove: nothing may grow (25 minutes)
	@$(GO) build -o bin/bench/ ./bench/soak
	@bin/bench/soak -program bin/msb -rounds $(SOAK_ROUNDS)

.PHONY: bench-programs bench-quick bench-growth bench-work
bench-programs: setup-bench build bin/gvproxy
	@mkdir -p bin/bench
	@$(GO) build -o bin/bench/ ./bench/net ./bench/ports ./bench/dns ./bench/proxy ./bench/capture ./bench/growth ./bench/life
	@CGO_ENABLED=0 $(GO) build -o bin/bench/ ./bench/guest

bench: bench-programs ## every benchmark beside its peers in one run (root, over an hour on 2 idle CPUs): writes docs/benchmarks.md, fails under bench/floors.toml
	@$(GO) -C bench/report run . -root $(CURDIR) -write

bench-quick: bench-programs ## the same programs, short, without microsandbox in an emulated host (root): prints a table
	@$(GO) -C bench/report run . -root $(CURDIR) -quick

mcpb: build ## pack msb as an MCP bundle, bin/msb.mcpb
	$(GO) run ./packaging/mcpb -version "$$(git describe --tags --match 'v[0-9]*' 2>/dev/null | sed s/^v// | grep . || echo 0.0.0)" -o bin/msb.mcpb

generate: ## regenerate committed generated files
	$(GO) generate ./...

clean: ## remove what the build made (downloads under lib/ too)
	rm -rf bin lib cmd/msb/testdata/npm/node_modules mcp/testdata/conformance/node_modules internal/guest/assets/bin/*
