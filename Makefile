# Tailor. `make run` serves, `make test` checks; `make help` lists the rest.

GO          ?= go
BIN         := bin/tailor
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
PKGS        := ./...

# go-nvml binds NVML functions that NVIDIA marks deprecated; the C compiler says so on every build.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

.PHONY: help build run e2e slow test fmt vet staticcheck unit race portable arm64 lint fuzz soak explore bench clean

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## compile bin/tailor
	@mkdir -p bin
	$(GO) build -o $(BIN) ./cmd/tailor

run: build ## three replicas and the router on http://127.0.0.1:8080
	./$(BIN) up

test: lint unit race portable ## everything a change must pass (about 10 minutes on two cores)

lint: fmt vet staticcheck ## gofmt, go vet (amd64 and arm64) and staticcheck

fmt:
	@bad=$$(gofmt -l $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')); \
	if [ -n "$$bad" ]; then echo "gofmt would change:"; echo "$$bad"; exit 1; fi

vet:
	$(GO) vet $(PKGS)
	GOARCH=arm64 CGO_ENABLED=0 $(GO) vet $(PKGS)

staticcheck:
	$(GO) run $(STATICCHECK) $(PKGS)

unit: ## all tests, without the race detector
	$(GO) test -count=1 $(PKGS)

race: ## the shorter sizes of all tests under the race detector
	$(GO) test -race -short -count=1 $(PKGS)

portable: ## no assembly, no cgo: the same tests at their shorter sizes
	CGO_ENABLED=0 $(GO) build -tags purego -o /dev/null ./cmd/tailor
	CGO_ENABLED=0 $(GO) test -tags purego -short -count=1 $(PKGS)

arm64: ## the kernels' and the model's tests for arm64 under qemu-user; says so and stops if qemu-aarch64 is absent
	@command -v qemu-aarch64 >/dev/null || { echo "make arm64 needs qemu-aarch64, of Debian's package qemu-user"; exit 1; }
	GOARCH=arm64 CGO_ENABLED=0 $(GO) test -exec qemu-aarch64 -short -count=1 -timeout 30m ./model/kernel ./model/kernel/blas ./model

FUZZTIME ?= 30s
fuzz: ## every fuzz target for FUZZTIME (30s) each
	@for pkg in $$($(GO) list $(PKGS)); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "== $$pkg $$f"; $(GO) test $$pkg -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) || exit 1; \
	  done; done

SOAKTIME ?= 10m
soak: ## twice the load that 64 blocks can bear, on an engine and on a process, for SOAKTIME (10m) each
	$(GO) test ./server/engine ./cmd/tailor -p 1 -run '^TestSoak' -count=1 -v -timeout 0 -soak $(SOAKTIME)

explore: ## the model-based tests with fresh seeds for SOAKTIME (10m)
	$(GO) test ./radixattn ./kvcache ./server/engine -run Model -count=1 -timeout 0 -soak $(SOAKTIME)

e2e: ## the official Go and Node clients against the built program (fetches the Node client by npm)
	cd e2e/node && npm ci --no-audit --no-fund
	cd e2e && $(GO) test -count=1 ./...

slow: ## 2,000 clients of a byte a second beside 8 normal ones (about 3 minutes)
	cd e2e && $(GO) test -count=1 -run SlowClients -v . -slow 2000

bench: build ## the default comparison: the lesson's requests under six routing policies (up to 3 minutes on two cores)
	./$(BIN) bench

clean:
	rm -rf bin
