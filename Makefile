# One line a recipe; what is done is in the commands.
SCENARIO ?= A
BACKEND ?= sim
OUT ?= out/$(SCENARIO)-$(BACKEND)
# On kind a trial takes twice as long to set up as on netns.
FORM = $(if $(or $(filter sim,$(BACKEND)),$(LONG)),,--short $(if $(filter kind,$(BACKEND)),--reps 2))
STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2

.DEFAULT_GOAL := help
.PHONY: help check format vet lint race pure test test-netns test-kind bench experiment reproduce report doctor clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

check: format vet lint race ## all that CI checks: format, vet, staticcheck, tests with the race detector

format:
	@test -z "$$(gofmt -l . | tee /dev/stderr)"

vet:
	go vet ./...

lint:
	$(STATICCHECK) ./...

# Packages whose tests run real processes, sockets and clocks: alone and one at
# a time, or they would measure each other.
LIVE = ./tc/... ./heart/xds/... ./heart/prom/... ./workloads/loadgen/... ./workloads/probe/... ./workloads/service/... ./testbed/netns/... ./cmd/workload/... ./cmd/heartbed/... ./bench/...
# Those that run on Kubernetes; and the experiments' own tests there.
KIND = ./testbed/kind/... ./testbed/cluster/... ./heart/istio/... ./cmd/heart/... ./cmd/activescale/...
# All but some folders.
ALL_BUT = go list ./... | grep -v -x -F "$$(go list $(1))"

race:
	go test -race -short $$($(call ALL_BUT,$(LIVE)))

test: pure test-netns test-kind ## run all tests that this machine can, the live ones last and alone

pure:
	go test $$($(call ALL_BUT,$(LIVE) $(KIND)))

test-netns: ## run the tests of the live parts; as root, HEARTBED_REQUIRE=netns forbids to skip
	go test -count=1 -p 1 $(LIVE)

test-kind: ## run the tests on Kubernetes; with Docker, HEARTBED_REQUIRE=kind forbids to skip
	go test -count=1 -p 1 -timeout 40m $(KIND)
	go test -count=1 -timeout 40m ./experiments -run "Kind|InACluster" -backend kind

bench: ## measure speed, against LEMON where it is installed (Debian: liblemon-dev)
	go run ./bench
	go test -run - -bench 400 ./heart/prom
	go test -run - -bench Streams ./activescale/sink
	go test -run - -bench Query ./activescale/provider

experiment: ## run a scenario and write its report: SCENARIO=A [BACKEND=sim]; LONG=1: not the short form on real backends
	go run ./cmd/heartbed run --scenario $(SCENARIO) --backend $(BACKEND) --out $(OUT) $(FORM)

reproduce: ## run everything the papers report into one report
	go run ./cmd/heartbed reproduce --out out/reproduce

report: ## write the report of a run again: SCENARIO=A [BACKEND=sim]
	go run ./cmd/heartbed report $(OUT)

doctor: ## say what each backend needs and lacks here
	go run ./cmd/heartbed doctor

clean: ## remove results
	rm -rf out
