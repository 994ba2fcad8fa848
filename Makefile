# make help lists the commands. make run, pay, test and build need only Go; make verify also
# needs the tools that .ci/run installs. If you call make with -C, add -s: otherwise make
# prints "Entering directory" on stdout before it reads this file.

SHELL := /bin/bash
ARCH ?= $(shell go env GOARCH)
FUNCTIONS := $(notdir $(wildcard functions/*))
# The build tag lambda.norpc leaves out code that only the retired Go runtime of Lambda needs.
# The targets build functions without cgo, so that the binaries run on any Linux.
BUILD_FLAGS := -trimpath -tags=lambda.norpc -ldflags="-s -w$${RELEASE:+ -buildid=$$RELEASE}"
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
FUZZTIME ?= 1m
GO_NEEDED := $(shell sed -n "s/^go //p" go.mod)
GOTEST ?= go test
export GOFLAGS ?= -buildvcs=false

# TYPED lists the variables whose values a person types. Recipes get these values unchanged,
# through the environment: make does not expand them, and the shell does not run a value in
# "$$NAME" as code.
TYPED := RELEASE TO AT URL KEY AGAIN KEY_FILE MAX YES V FN EVENT ORIGIN PAY_TO STACK_NAME RTT RUNS RECORDS N SEED WALLET TRANSACTION DAY PART DO NAME SET UNSET FILE STACK
TYPED += OF SELLER PRICE OTHER_PRICE PROMISES ROW FORMAT OTHER BODY TOOL_URL TOOL ARGS PYTHON
$(foreach v,$(TYPED),$(if $(value $v),$(eval override $v := $$(value $v))$(eval export $v)))

# needs_go prints what to do if Go is missing or too old for this module.
define needs_go
command -v go >/dev/null || { echo "Go is not installed: this needs Go $(GO_NEEDED) or later, from https://go.dev/dl" >&2; exit 1; }; \
	go list -m >/dev/null || { echo "This needs Go $(GO_NEEDED) or later, from https://go.dev/dl; the one here is $$(GOTOOLCHAIN=local go version)" >&2; exit 1; }
endef

# compile builds commands into the folder build. It shows progress, because the first build
# takes a while.
define compile
$(needs_go); \
	echo "Building (about a minute the first time) ..."; \
	set -o pipefail; go build -v -o build/ $(1) 2>&1 | awk '/^[a-zA-Z0-9._\/-]+$$/ {n++; if (n % 25 == 0) print "  compiled " n " packages"; fflush(); next} {print}' >&2
endef

##@ Use

.PHONY: help
help: ## List the commands
##   OF=pay            list only this command, with its settings; OF=all lists all commands with their settings
	@awk 'BEGIN {FS = ":.*## "; of = ENVIRON["OF"]} \
		/^##@ / && (of == "" || of == "all") {printf "%s%s\n", sep, substr($$0, 5); sep = "\n"} \
		/^[a-z-]+:.*## / {shown = of == "" || of == "all" || of == $$1; found = found || shown; if (shown) printf "  %-14s %s\n", $$1, $$2} \
		/^##   / && shown && of != "" {printf "  %-14s   %s\n", "", substr($$0, 6)} \
		END {if (!found) {print "There is no command " of ": make help lists them." > "/dev/stderr"; exit 1} \
			if (of == "") print "\nmake help OF=pay shows the settings of a command, and make help OF=all shows the settings of every command."}' $(MAKEFILE_LIST)

.PHONY: run
run: ## Start the whole service on http://127.0.0.1:8402
##   NETWORK=...       eip155:84532 for test money on Base Sepolia (default: Base, with play money)
##   PAY_TO=0x...      account that receives real money; also set FACILITATOR_URL
##   FACILITATOR_URL=... x402 facilitator that settles payments (default: play money)
##   LOCAL_ADDR=...    address to listen on; play money uses the next port (default: 127.0.0.1:8402)
##   DNS_RESOLVERS=... resolvers to query (default: public ones)
	@mkdir -p build .local
	@$(call compile,./infra/local)
	@exec build/local

.PHONY: demo
demo: ## Compare the service with a seller that has no ledger, during a minute of failures; needs no network
	@mkdir -p build
	@$(call compile,./infra/local ./infra/demo ./infra/demo/thirty)
	@exec build/demo

.PHONY: pay
pay: ## Buy an answer, with a throwaway key and play money unless you set KEY_FILE
##   URL=...           what to buy (default: the ping)
##   KEY=...           Idempotency-Key: one charge per payer and key (default: random)
##   V=1               also show the payment headers, decoded
##   AGAIN=1           resend the last signature; AGAIN=<file> resends an earlier one
##   KEY_FILE=...      pay real money with the private key in this file
##   MAX=0.10          never pay more than this, in units of the token (default with KEY_FILE: 0.10)
##   YES=1             pay real money without asking
	@$(needs_go)
	@CALLED_BY=make go run ./infra/local/pay $${KEY:+-key "$$KEY"} $${KEY_FILE:+-key-file "$$KEY_FILE"} $${MAX:+-max "$$MAX"} $${AGAIN:+-again "$$AGAIN"} $${V:+-v="$$V"} $${YES:+-yes="$$YES"} -- $${URL:+"$$URL"}

.PHONY: pay-mcp
pay-mcp: ## Let any MCP host buy from a paid MCP server: print what to paste into the host
##   URL=...           the server (default: http://127.0.0.1:8402/mcp)
##   DO=allow          allow real money, within limits that you set
##   DO=status         show the money spent, and purchases without an answer
	@$(needs_go)
	@mkdir -p build && (cd infra/paymcp && go build -o ../../build/pay-mcp .) && exec build/pay-mcp $${DO:+"$$DO"} "$${URL:-http://127.0.0.1:8402/mcp}"

.PHONY: judge
judge: ## Test any x402 seller for double charges and lost answers; 1 to 5 minutes
##   SELLER='...'      command that starts the seller; {facilitator} stands for the facilitator's URL
##   URL=...           what to buy from the seller: an http URL on this machine
##   PRICE=0.01        the price that the seller must ask (default: any)
##   PROMISES=same,new,key  retries for which the seller promises one charge: same signature, new signature, Idempotency-Key (default: none)
##   ROW=name          play only this row of the report; V=1 shows each step
##   FORMAT=markdown   or json (default: text)
##   OTHER=...         URL of another item at the same price (default: URL with another query)
##   OTHER_PRICE=0.02  second price to test, if SELLER has {price}
##   BODY='{...}'      body to POST
##   TOOL_URL=...      MCP endpoint that sells tools
##   TOOL=name         tool to call there
##   ARGS='{...}'      arguments of the call
##   NETWORK=...       network of the payments; eip155:84532 is Base Sepolia (default: eip155:8453)
##   CLIENTS=1         also buy with the unmodified clients of infra/clients; run make node-packages first
##   PYTHON=...        Python in which the Python clients are installed (default: python3)
	@$(needs_go)
	@mkdir -p build && go build -o build/judge ./infra/judge && CALLED_BY=make exec build/judge \
		$${URL:+-url "$$URL"} $${PRICE:+-price "$$PRICE"} $${PROMISES:+-promises "$$PROMISES"} $${ROW:+-row "$$ROW"} $${V:+-v="$$V"} \
		$${FORMAT:+-format "$$FORMAT"} $${SEED:+-seed "$$SEED"} $${OTHER:+-other "$$OTHER"} $${OTHER_PRICE:+-other-price "$$OTHER_PRICE"} \
		$${BODY:+-body "$$BODY"} $${TOOL_URL:+-tool-url "$$TOOL_URL"} $${TOOL:+-tool "$$TOOL"} $${ARGS:+-args "$$ARGS"} \
		$${NETWORK:+-network "$$NETWORK"} $(if $(CLIENTS),-clients infra/clients) $${PYTHON:+-python "$$PYTHON"} -- $${SELLER:+"$$SELLER"}

.PHONY: simnet
simnet: ## Open a shell in a simulated internet with the service running (Linux)
##   RTT=50ms          round-trip time to all other hosts (default: 0s)
	@$(needs_go)
	@mkdir -p build && go build -o build/pay ./infra/local/pay && go test -c -o build/simnet.test ./infra/simnet && \
		cd infra/simnet && ../../build/simnet.test -test.run '^TestSimnet$$' -shell $${RTT:+-rtt "$$RTT"}

.PHONY: clean
clean: ## Remove build outputs, the local ledger and saved signatures
	rm -rf build .local .aws-sam

##@ Develop

# QUICK has the packages that make test tests with -short. VERIFY has all other packages, and
# those packages of QUICK with tests that -short skips; the slowest come first. .ci/run fails if
# neither make test nor make verify runs a test or the tests of a package.
#
# MODULES has the modules in folders below this one. They are separate, so that users of this
# module do not get their dependencies. make test runs the tests of infra/house, and make verify
# those of infra/cdk, infra/deploy, infra/paymcp and infra/shop. Tests of modules run with
# -count=1, because go test does not notice that a file outside a module has changed.
MODULES := infra/cdk infra/deploy infra/house infra/paymcp infra/shop infra/clients/testdata/mcp/go
QUICK := ./pkg/... ./infra/local/... ./infra/sam ./infra/gameday ./infra/simnet ./infra/testbed/npmproxy ./infra/testbed/programs
VERIFY := ./infra/clients ./infra/samcli ./infra/functions ./infra/runbook ./infra/workflows ./infra/outside ./infra/local/e2e ./infra/simnet ./infra/gameday \
	./infra/bench ./infra/judge ./infra/demo ./infra/local ./infra/local/operate ./infra/local/secret ./infra/testbed \
	./pkg/boot ./pkg/x402/ledger/dynamo ./pkg/x402/chain/... ./pkg/x402/x402test/...

.PHONY: test
test: ## Run the tests that need only Go: units, contracts, state exploration, fault schedules; 4 to 7 minutes
	go test -vet=off -cover -timeout 60m -run Campaign ./pkg/x402
	go test -vet=off -cover -timeout 60m -skip Campaign ./pkg/x402 ./pkg/x402/reconcile ./pkg/x402/ledger ./pkg/service
	cd infra/house && $(GOTEST) -vet=off -count=1 $(TESTFLAGS) ./...
	$(GOTEST) -race -vet=off -short -timeout 60m $(TESTFLAGS) $(QUICK)

.PHONY: verify
verify: node-packages ## Run the other tests of CI: real peers, namespaces, browser, load, the judge; 17 minutes
	$(GOTEST) -race -vet=off -timeout 60m $(TESTFLAGS) $(VERIFY)
	cd infra/cdk && $(GOTEST) -race -count=1 -vet=off -timeout 60m $(TESTFLAGS) ./...
	cd infra/deploy && $(GOTEST) -race -count=1 -vet=off -timeout 60m $(TESTFLAGS) ./...
	cd infra/paymcp && $(GOTEST) -race -count=1 -vet=off -timeout 60m $(TESTFLAGS) ./...
	cd infra/shop && $(GOTEST) -race -count=1 -vet=off -timeout 60m $(TESTFLAGS) ./...

.PHONY: check
check: ## Check formatting, module tidiness and workflows; run go vet (also for macOS) and the linter; build pay and pay-mcp for Windows
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not gofmt'd:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	go vet ./...
	go mod tidy -diff
	for m in $(MODULES); do (cd $$m && go vet ./... && go mod tidy -diff) || exit 1; done
	for m in . $(MODULES); do (cd $$m && GOOS=darwin go vet ./...) || exit 1; done
	GOOS=windows go build ./pkg/... ./infra/local/pay && cd infra/paymcp && GOOS=windows go build ./...
	cd infra/shop && go vet ./testdata/late
	go run $(ACTIONLINT) -shellcheck= -pyflakes=
	go run $(GOLANGCI) run ./...
	cd infra/cdk && go run $(GOLANGCI) run ./...
	cd infra/deploy && go run $(GOLANGCI) run ./...
	cd infra/house && go run $(GOLANGCI) run ./...
	cd infra/paymcp && go run $(GOLANGCI) run ./...

.PHONY: build
build: ## Build every function to build/<slug>/bootstrap
##   ARCH=arm64        processor architecture (default: this machine's)
##   RELEASE=...       release name built into the binaries
	@for f in $(FUNCTIONS); do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) go build $(BUILD_FLAGS) -o build/$$f/bootstrap ./functions/$$f || exit 1; \
		wc -c < build/$$f/bootstrap | awk -v f=$$f -v arch=$(ARCH) '{printf "  %-18s %s  %5.2f MB\n", f, arch, $$1 / 1000000}'; \
	done

.PHONY: release
release: ## Build and pack the functions for arm64 into build/release, reproducibly (Linux)
##   RELEASE=v1.2.0    the version
	@[[ "$$RELEASE" =~ ^v[0-9]+\.[0-9]+\.[0-9]+$$ ]] || { echo "usage: make release RELEASE=v1.2.0" >&2; exit 2; }
	@$(MAKE) --no-print-directory build ARCH=arm64
	@rm -rf build/release && mkdir -p build/release && set -o pipefail && \
		tar -C build --mtime="@$$(git log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner --mode=0755 \
			-c $(sort $(FUNCTIONS:%=%/bootstrap)) | gzip -n > "build/release/hostfacts-$$RELEASE-arm64.tar.gz" && \
		cd build/release && sha256sum -- *.tar.gz | tee SHA256SUMS

.PHONY: local-invoke
local-invoke: ## Run a function with an event, as Lambda would, and pay play money if needed
##   FN=dns            the function
##   EVENT=...         file with the event (default: events/FN.json)
##   SAM=1             use sam local invoke, in Docker
	@test -n "$$FN" || { echo "usage: make local-invoke FN=dns [EVENT=events/dns.json]" >&2; exit 2; }
	@for f in $(FUNCTIONS); do test "$$f" = "$$FN" && exit 0; done; echo "there is no function $$FN; there are: $(FUNCTIONS)" >&2; exit 2
	@CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) go build $(BUILD_FLAGS) -o "build/trial/$$FN/function" "./functions/$$FN"
	@CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) go build $(BUILD_FLAGS) -o "build/trial/$$FN/bootstrap" ./infra/local/invoke
	@go run ./infra/local/invoke -build build/trial -fn "$$FN" $${EVENT:+-event "$$EVENT"} $(if $(SAM),-sam)

.PHONY: bench
bench: node-packages build ## Compare the service with the alternatives, and write infra/bench/table.md; 12 minutes
##   RUNS=15           number of lookups per operation and of rounds of requests; most kinds of requests run a third as many rounds (default: 15)
##   RTT=50ms          round-trip time to all other hosts (default: 50ms)
##   RECORDS=1000000   payments in the largest ledger (default: 1000000)
	@go build -o build/bench ./infra/bench && go build -o build/local ./infra/local && \
		{ [ "$$(uname)" != Linux ] || go test -vet=off -c -o build/simnet.test ./infra/simnet; } && \
		build/bench table -rtt "$${RTT:-50ms}" -runs "$${RUNS:-15}" -records "$${RECORDS:-1000000}"

.PHONY: microbench
microbench: ## Run every Go benchmark
	go test -vet=off -timeout 60m -run '^$$' -bench . -benchmem $$(grep -rl --include='*_test.go' '^func Benchmark' pkg infra/local | xargs -n1 dirname | sort -u | sed 's,^,./,')

.PHONY: fuzz
fuzz: ## Run every fuzz target
##   FUZZTIME=1m       time for each target (default: 1m)
	@grep -rEl '^func Fuzz' --include=*_test.go pkg infra | xargs -n1 dirname | sort -u | while read -r d; do \
		grep -hoE '^func Fuzz[A-Za-z0-9_]*' $$d/*_test.go | sed 's/func //' | while read -r f; do \
			echo "== $$d $$f"; go test ./$$d -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) || exit 1; \
		done || exit 1; \
	done

.PHONY: update
update: ## Regenerate all files derived from the catalog and the pages; read the diff afterwards
	@(cd infra/house && go test -vet=off -run '^(TestPrograms|TestMinified|TestPictures)$$' . -update)
	@for i in 1 2 3; do go test -vet=off ./infra/sam ./pkg/lookup ./pkg/discovery -update >/dev/null || true; done # some documents are made from others; a real failure appears again below
	@go test -vet=off ./infra/sam ./pkg/lookup ./pkg/discovery

.PHONY: stats
stats: ## Measure the Go code: size, density by package, complexity, import cycles of folders
	@cd infra/house && go test -vet=off -count=1 -run '^TestStats$$' -stats.print

.PHONY: campaign
campaign: ## Run the payment layer through random schedules of faults
##   N=1000000         number of schedules (default: 1000000)
##   SEED=0            number of the first schedule (default: 0)
	go test ./pkg/x402 -run '^TestCampaign$$' -count=1 -timeout 0 -v -campaign.n="$${N:-1000000}" -campaign.seed="$${SEED:-0}" -campaign.progress

.PHONY: storm
storm: ## Kill a shop's processes while it sells and its facilitator gives false answers; check every transfer; 3 to 6 minutes
##   N=1000            number of purchases (default: 1000)
##   SEED=1            seed of the faults and the clients (default: 1)
	cd infra/shop && go test ./storm -run '^TestStorm$$' -count=1 -timeout 0 -v -storm.n="$${N:-1000}" -storm.seed="$${SEED:-1}"

.PHONY: gameday
gameday: ## Break each dependency once; print what clients see and which alarms go off (Linux)
	@mkdir -p build && go test -c -o build/gameday.test ./infra/gameday && \
		cd infra/gameday && ../../build/gameday.test -test.run '^TestGameDay$$' -test.v

.PHONY: prove
prove: node-packages ## Run the tests that CI does not run: third-party conformance lists, newest linters, mutants, a million schedules; 45 minutes
##   PART=linters      run only this part: linters, lists (conformance, 2 minutes), printed (programs of /docs),
##                     lighthouse (scores of the pages), mutants or campaign (default: all)
	@go build -o build/local ./infra/local && go build -o build/pay ./infra/local/pay
	@cmp -s infra/prove/requirements.txt build/prove/installed || { python3 -m venv --clear build/prove && \
		build/prove/bin/pip install -q --disable-pip-version-check -r infra/prove/requirements.txt && \
		cp infra/prove/requirements.txt build/prove/installed; }
	@build/prove/bin/python -B infra/prove/prove.py $${PART:+"$$PART"}

.PHONY: screenshots
screenshots: node-packages ## Write a screenshot of each page state to build/screenshots, and update the README's screenshots
	go test ./infra/clients -run '^TestBrowser$$' -count=1 -timeout 60m -update-screenshots

.PHONY: schemathesis
schemathesis: ## Send generated requests to a service, and check its answers against its OpenAPI description
##   URL=...           origin of the service (default: http://127.0.0.1:8402)
	@test -x .local/schemathesis/bin/schemathesis || { python3 -m venv .local/schemathesis && .local/schemathesis/bin/pip install -q schemathesis==4.32.5; }
	.local/schemathesis/bin/schemathesis run "$${URL:-http://127.0.0.1:8402}/openapi.json" --exclude-checks positive_data_acceptance,negative_data_rejection --max-examples 200

.PHONY: node-packages
node-packages: ## Install the npm packages that the test suites use
	@command -v npm >/dev/null || { echo "npm is not installed: the suites that need it are skipped by name"; exit 0; }; \
	git ls-files '*package-lock.json' | xargs -n1 dirname | xargs -P4 -I{} sh -c \
		'cd {} && cmp -s package-lock.json node_modules/.installed-lock || { echo "npm ci in {}"; \
			npm ci --no-audit --no-fund --loglevel=error && cp package-lock.json node_modules/.installed-lock; }'

##@ Operate

.PHONY: sam-build
sam-build: ## Build for deployment with the SAM CLI, as a new release each time
	CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath -tags=lambda.norpc '-ldflags=-s -buildid=$$(date +%s)'" sam build

.PHONY: deploy
deploy: ## Deploy the stack that infra/stacks/STACK.toml describes, and check the deployment
##   STACK=...         the name of the file, without .toml
##   YES=1             deploy without asking
	@test -n "$$STACK" || { echo "usage: make deploy STACK=name [YES=1]; the file is infra/stacks/name.toml" >&2; exit 2; }
	@cd infra/deploy && go run . deploy $${YES:+-yes="$$YES"} -- "$$STACK"

.PHONY: rollback
rollback: ## Deploy the code of the previous release, with the parameters of today's file
##   STACK=...         the name of the file
##   TO=...            commit to deploy (default: the previous release)
##   YES=1             deploy without asking
	@test -n "$$STACK" || { echo "usage: make rollback STACK=name [TO=commit] [YES=1]" >&2; exit 2; }
	@cd infra/deploy && go run . rollback $${YES:+-yes="$$YES"} $${TO:+-to="$$TO"} -- "$$STACK"

.PHONY: check-stack
check-stack: ## Check infra/stacks/STACK.toml as make deploy does, without deploying
##   STACK=...         the name of the file
	@test -n "$$STACK" || { echo "usage: make check-stack STACK=name" >&2; exit 2; }
	@cd infra/deploy && go run . check -- "$$STACK"

.PHONY: smoke
smoke: ## Check a deployment: compare it with its file, read /ready, and pay for a ping
##   STACK=...         the name of the file
##   ORIGIN=https://... instead of STACK, if no file describes the deployment
##   KEY_FILE=...      pay real money with the private key in this file
##   YES=1             pay real money without asking
	@test -n "$$STACK$$ORIGIN" || { echo "usage: make smoke STACK=name [KEY_FILE=...], or ORIGIN=https://api.example.com" >&2; exit 2; }
	@test -z "$$STACK" || ORIGIN="$$(cd infra/deploy && go run . smoke -- "$$STACK")" || exit 1; \
		CALLED_BY=make go run ./infra/local/operate smoke "$$ORIGIN" && \
		CALLED_BY=make go run ./infra/local/pay -max 0.001 $${KEY_FILE:+-key-file "$$KEY_FILE"} $${YES:+-yes="$$YES"} -- "$${ORIGIN%/}/v1/tools/ping"

.PHONY: mark-ledger
mark-ledger: ## Mark the table LEDGER_TABLE as the ledger of a stack
##   STACK_NAME=...    the stack
##   PAY_TO=0x...      the stack's payee
##   ORIGIN=https://... the stack's public origin, if it has no BASE_URL
##   FORCE=1           mark the table even if it is marked for another payee
	@CALLED_BY=make go run ./infra/local/operate mark-ledger $(if $(FORCE),-force) $${ORIGIN:+"$$ORIGIN"}

.PHONY: try-page
try-page: ## Show who is notified of a stack's alarms, and send them a test page and a test ticket
##   STACK_NAME=...    the stack
	@CALLED_BY=make go run ./infra/local/operate try-page

.PHONY: restore
restore: ## Restore the ledger's table (LEDGER_TABLE) into a new table
##   TO=...            name of the new table (default: the table's name with -copy or -drill appended)
##   AT=...            point in time to restore, such as 2026-11-20T08:00:00Z (default: the latest possible)
##   DRILL=1           delete the new table after checking it
	@CALLED_BY=make go run ./infra/local/operate restore $${TO:+-to "$$TO"} $${AT:+-at "$$AT"} $(if $(DRILL),-drill)

.PHONY: backup
backup: ## Copy the ledger file, even while a service has it open
##   LEDGER_FILE=...   the ledger (default: .local/ledger.db)
##   TO=...            file to create; nothing is overwritten (default: the ledger's name and the time)
	@CALLED_BY=make go run ./infra/local/operate backup $${TO:+"$$TO"}

# The next six targets work on the ledger file of make run, even while make run is running, or
# on the table that LEDGER_TABLE names. With RPC_URL they can query the chain. CALLED_BY=make
# makes the messages of the program name make targets.
.PHONY: reconcile
reconcile: ## Check every payment in doubt once, and decide those that can be decided
	@CALLED_BY=make go run ./infra/local/operate reconcile

.PHONY: owed
owed: ## List payments that are owed an answer or a refund, and payments in doubt
##   JSON=1            print JSON
	@CALLED_BY=make go run ./infra/local/operate owed $(if $(JSON),-json)

.PHONY: payer
payer: ## Show what one wallet has paid and received, and what it is owed
##   WALLET=0x...      the wallet
##   JSON=1            print JSON
	@test -n "$$WALLET" || { echo "usage: make payer WALLET=0x... [JSON=1]" >&2; exit 2; }
	@CALLED_BY=make go run ./infra/local/operate payer $(if $(JSON),-json) "$$WALLET"

.PHONY: refund
refund: ## Begin a refund and show what to transfer, or close the debt
##   KEY='...'         the payment, as make owed prints it
##   TRANSACTION=0x... close the debt with this transaction
##   FORCE=1           with TRANSACTION: close the debt even if the chain cannot be asked;
##                     without TRANSACTION: withdraw the refund
	@test -n "$$KEY" || { echo "usage: make refund KEY='eip155:8453|0x...|0x...|0x...' [TRANSACTION=0x...] [FORCE=1]; make owed prints keys" >&2; exit 2; }
	@CALLED_BY=make go run ./infra/local/operate refund $(if $(FORCE),-force) "$$KEY" $${TRANSACTION:+"$$TRANSACTION"}

.PHONY: answered
answered: ## Close a debt whose answer was given before the ledger was restored
##   KEY='...'         the payment, as make owed prints it
##   TRANSACTION=0x... transaction that paid for the answer, from the answer's log line
##   FORCE=1           close the debt even if a refund has begun
	@test -n "$$KEY" || { echo "usage: make answered KEY='eip155:8453|0x...|0x...|0x...' TRANSACTION=0x... [FORCE=1]; make owed prints keys" >&2; exit 2; }
	@CALLED_BY=make go run ./infra/local/operate answered $(if $(FORCE),-force) "$$KEY" "$$TRANSACTION"

.PHONY: books
books: ## Compare a day's transfers on the chain with the ledger, and fail if they differ
##   DAY=2026-11-20    the day, in UTC
##   JSON=1            print JSON
	@test -n "$$DAY" || { echo "usage: make books DAY=2026-11-20 [JSON=1]" >&2; exit 2; }
	@CALLED_BY=make go run ./infra/local/operate books $(if $(JSON),-json) "$$DAY"

.PHONY: secret
secret: ## Show, create or change the secret of FacilitatorSecretArn, one part at a time
##   NAME=...          the secret's ARN, or its name, which begins with the stack's name
##   SET=token         part to change: token, key, rpc_urls or receipt_key
##   UNSET=...         part to remove
##   FILE=...          read the value from this file (default: ask for it)
##   YES=1             write without asking
	@test -n "$$NAME" || { echo "usage: make secret NAME=hostfacts-production-facilitator [SET=token|key|rpc_urls|receipt_key] [UNSET=...] [FILE=...]" >&2; exit 2; }
	@CALLED_BY=make go run ./infra/local/secret -name "$$NAME" $${SET:+-set "$$SET"} $${UNSET:+-unset "$$UNSET"} $${FILE:+-file "$$FILE"} $${YES:+-yes="$$YES"}

.PHONY: sign-origin
sign-origin: ## Sign an origin with the payee's key, offline
##   ORIGIN=https://... the origin
##   PAY_TO=0x...      the payee; with it, the command warns if the key belongs to another account
##   KEY_FILE=...      read the key from this file (default: ask for it)
	@test -n "$$ORIGIN" || { echo "usage: make sign-origin ORIGIN=https://api.example.com [PAY_TO=0x...] [KEY_FILE=...]" >&2; exit 2; }
	@go run ./infra/local/keys sign-origin -origin "$$ORIGIN" $${PAY_TO:+-pay-to "$$PAY_TO"} $${KEY_FILE:+-key-file "$$KEY_FILE"}

.PHONY: receipt-key
receipt-key: ## Create a key that signs receipts
##   RECEIPT_PUBLIC_KEYS=... the keys published so far
	@go run ./infra/local/keys receipt-key
