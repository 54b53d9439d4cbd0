.PHONY: help run test e2e soak fuzz bench check build dist clean

help: ## show this
	@sed -n 's/^\([a-z0-9]*\):.*## /\1	/p' Makefile

run: ## the kubelet on the sample pods, on a containerd of its own, until Ctrl-C
	@tests/env/run-demo

test: ## every test; those that need a runtime run on each containerd there is
	@tests/env/run-tests

e2e: ## the tests that need an API server, alone, on a kube-apiserver of their own
	@tests/env/run-tests --cluster

soak: ## the tests with seeds by chance, on each runtime all of them and 500 kubelets killed, and long outages; UNDERSTUDY_KILLS=N for another number
	@UNDERSTUDY_RANDOM=1 UNDERSTUDY_WHOLE=1 UNDERSTUDY_CASE_SECONDS=25200 UNDERSTUDY_LANE_SECONDS=86400 UNDERSTUDY_KILLS=$${UNDERSTUDY_KILLS:-500} UNDERSTUDY_FREEZE_SECONDS=$${UNDERSTUDY_FREEZE_SECONDS:-120} \
	  UNDERSTUDY_OUTAGE_SECONDS=$${UNDERSTUDY_OUTAGE_SECONDS:-180} \
	  UNDERSTUDY_API_OUTAGE_SECONDS=$${UNDERSTUDY_API_OUTAGE_SECONDS:-600} tests/env/run-tests

fuzz: ## every decoder on mutated inputs, for a minute in all; UNDERSTUDY_FUZZ_SECONDS=N for longer, UNDERSTUDY_FUZZ_TARGETS="yaml flags" for some
	@cargo run --quiet -p fuzz-targets -- $${UNDERSTUDY_FUZZ_TARGETS-} --seconds $${UNDERSTUDY_FUZZ_SECONDS:-60} --seed $${UNDERSTUDY_SEED:-1}

bench: ## the benchmarks; a node on a containerd of its own beside the bare calls to it, alone and in a cluster
	@tests/env/run-bench

check: ## in seconds shellcheck, formatting and the rules of the house; then dependencies and clippy
	@tests/env/run-check

build: ## both programs as make run has them, quickly built: target/debug/kubelet, target/debug/understudy
	cargo build -p kubelet
	cargo build -p understudy

dist: ## both programs as they are shipped: target/release/kubelet, target/release/understudy
	cargo build --release -p kubelet
	cargo build --release -p understudy

clean: ## remove what was built
	cargo clean
