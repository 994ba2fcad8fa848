# make help prints what there is. Go is enough for run, pay, test and build;
# make verify also uses what .ci/run installs. With -C add -s: make says
# "Entering directory" on stdout before it reads this file.

SHELL := /bin/bash
ARCH ?= $(shell go env GOARCH)
FUNCTIONS := $(notdir $(wildcard functions/*))
# lambda.norpc leaves out what only the retired Go runtime needs; no cgo, so
# that the binary runs on any Linux.
BUILD_FLAGS := -trimpath -tags=lambda.norpc -ldflags="-s -w$${RELEASE:+ -buildid=$$RELEASE}"
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
FUZZTIME ?= 1m
GO_NEEDED := $(shell sed -n "s/^go //p" go.mod)
GOTEST ?= go test
export GOFLAGS ?= -buildvcs=false

# What a person types gets to the recipes through the environment, as it was
# typed: make does not expand it here, and the recipes' "$$NAME" is not code.
TYPED := RELEASE TO AT URL KEY AGAIN KEY_FILE MAX YES V FN EVENT ORIGIN PAY_TO STACK_NAME RTT RUNS RECORDS N SEED WALLET TRANSACTION DAY PART DO NAME SET UNSET FILE STACK
TYPED += SELLER PRICE OTHER_PRICE PROMISES ROW FORMAT OTHER BODY TOOL_URL TOOL ARGS PYTHON
$(foreach v,$(TYPED),$(if $(value $v),$(eval override $v := $$(value $v))$(eval export $v)))

# Says what to do where there is no Go, or one that cannot build this module.
define needs_go
command -v go >/dev/null || { echo "Go is not installed: this needs Go $(GO_NEEDED) or later, from https://go.dev/dl" >&2; exit 1; }; \
	go list -m >/dev/null || { echo "This needs Go $(GO_NEEDED) or later, from https://go.dev/dl; the one here is $$(GOTOOLCHAIN=local go version)" >&2; exit 1; }
endef

# Puts commands into build, and says how far it is: on a new machine it takes a while.
define compile
$(needs_go); \
	echo "building with Go $(GO_NEEDED) or later; the first time takes about a minute ..."; \
	set -o pipefail; go build -v -o build/ $(1) 2>&1 | awk '/^[a-zA-Z0-9._\/-]+$$/ {n++; if (n % 25 == 0) print "  " n " packages are compiled"; fflush(); next} {print}' >&2
endef

##@ Use

.PHONY: help
help: ## Print this help
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "%s%s\n", sep, substr($$0, 5); sep = "\n"} \
		/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2} \
		/^##   / {printf "  %-14s   %s\n", "", substr($$0, 6)}' $(MAKEFILE_LIST)

.PHONY: run
run: ## Start the whole service on http://127.0.0.1:8402
##   NETWORK=...       eip155:84532 is Base Sepolia, with a public facilitator and test money (default: Base, with play money)
##   LOCAL_ADDR=...    listen there; play money takes the port after it (default: 127.0.0.1:8402)
##   DNS_RESOLVERS=... ask these resolvers (default: public ones)
	@mkdir -p build .local
	@$(call compile,./infra/local)
	@exec build/local

.PHONY: demo
demo: ## Watch a minute of lost payments, here and at a seller without a ledger; asks nothing but this machine
	@mkdir -p build
	@$(call compile,./infra/local ./infra/demo ./infra/demo/thirty)
	@exec build/demo

.PHONY: pay
pay: ## Pay for an answer, with a throwaway key and play money unless KEY_FILE is given
##   URL=...           what to pay for (default: the ping of make run)
##   KEY=...           name of the purchase: one name, one charge (default: drawn at random)
##   V=1               show the decoded handshake
##   AGAIN=1           send the last signature again; AGAIN=<file> an earlier one
##   KEY_FILE=...      pay real money with the private key in this file
##   MAX=0.10          sign no more than this, in units of the token (default with KEY_FILE: 0.10)
##   YES=1             do not ask before real money is paid
	@$(needs_go)
	@CALLED_BY=make go run ./infra/local/pay $${KEY:+-key "$$KEY"} $${KEY_FILE:+-key-file "$$KEY_FILE"} $${MAX:+-max "$$MAX"} $${AGAIN:+-again "$$AGAIN"} $${V:+-v="$$V"} $${YES:+-yes="$$YES"} -- $${URL:+"$$URL"}

.PHONY: pay-mcp
pay-mcp: ## Let any MCP host buy from a paid MCP server: print what to paste into it; a host starts it by that
##   URL=...           the server (default: http://127.0.0.1:8402/mcp)
##   DO=allow          pay real money there, within limits that it asks for
##   DO=status         what was spent, and what has no answer
	@$(needs_go)
	@mkdir -p build && (cd infra/paymcp && go build -o ../../build/pay-mcp .) && exec build/pay-mcp $${DO:+"$$DO"} "$${URL:-http://127.0.0.1:8402/mcp}"

.PHONY: judge
judge: ## Play the bad days of the field against any seller; say what was charged, answered and promised: 1 to 5 minutes
##   SELLER='...'      the command that starts it; {facilitator} stands for the facilitator's URL
##   URL=...           what it sells: an http URL of this machine
##   PRICE=0.01        what it asks for that (default: whatever it asks)
##   PROMISES=same,new,key  in which ways a purchase may be asked for again (default: none)
##   ROW=name V=1      play this row alone, and tell what happens
##   FORMAT=markdown   or json (default: text)
##   OTHER=...         a URL of something else at the same price (default: URL with another query)
##   OTHER_PRICE=0.02  another price, where SELLER has {price}
##   BODY='{...}'      what to post
##   TOOL_URL=...      where tools are sold over the Model Context Protocol,
##   TOOL=name         which tool to call there,
##   ARGS='{...}'      and with which arguments
##   NETWORK=...       where it is paid; eip155:84532 is Base Sepolia (default: eip155:8453)
##   CLIENTS=1         have the stock clients of infra/clients buy as well; make node-packages installs them
##   PYTHON=...        the Python that has those of Python (default: python3)
	@$(needs_go)
	@mkdir -p build && go build -o build/judge ./infra/judge && CALLED_BY=make exec build/judge \
		$${URL:+-url "$$URL"} $${PRICE:+-price "$$PRICE"} $${PROMISES:+-promises "$$PROMISES"} $${ROW:+-row "$$ROW"} $${V:+-v="$$V"} \
		$${FORMAT:+-format "$$FORMAT"} $${SEED:+-seed "$$SEED"} $${OTHER:+-other "$$OTHER"} $${OTHER_PRICE:+-other-price "$$OTHER_PRICE"} \
		$${BODY:+-body "$$BODY"} $${TOOL_URL:+-tool-url "$$TOOL_URL"} $${TOOL:+-tool "$$TOOL"} $${ARGS:+-args "$$ARGS"} \
		$${NETWORK:+-network "$$NETWORK"} $(if $(CLIENTS),-clients infra/clients) $${PYTHON:+-python "$$PYTHON"} -- $${SELLER:+"$$SELLER"}

.PHONY: simnet
simnet: ## A shell in a small internet with the service running (Linux)
##   RTT=50ms          how far away everything else is (default: 0s)
	@$(needs_go)
	@mkdir -p build && go build -o build/pay ./infra/local/pay && go test -c -o build/simnet.test ./infra/simnet && \
		cd infra/simnet && ../../build/simnet.test -test.run '^TestSimnet$$' -shell $${RTT:+-rtt "$$RTT"}

.PHONY: clean
clean: ## Remove build outputs, the local ledger and the kept signatures
	rm -rf build .local .aws-sam

##@ Develop

# The packages that make test runs with -short. What it leaves out is in VERIFY: the
# packages with tests that -short skips, and all others. .ci/run fails when a test or a
# package is in neither. Those that take longest begin first. MODULES are the modules
# below this one, whose dependencies are not to be everybody's: make test runs the tests of
# infra/house, and make verify those of infra/cdk, infra/deploy, infra/paymcp and infra/shop. They are run
# with -count=1: go test does not see that a file outside of its module has changed.
MODULES := infra/cdk infra/deploy infra/house infra/paymcp infra/shop infra/clients/testdata/mcp/go
QUICK := ./pkg/... ./infra/local/... ./infra/sam ./infra/gameday ./infra/simnet ./infra/testbed/npmproxy ./infra/testbed/programs
VERIFY := ./infra/clients ./infra ./infra/outside ./infra/local/e2e ./infra/simnet ./infra/gameday \
	./infra/bench ./infra/judge ./infra/demo ./infra/local ./infra/local/operate ./infra/testbed \
	./pkg/boot ./pkg/x402/ledger/dynamo ./pkg/x402/chain/... ./pkg/x402/x402test/...

.PHONY: test
test: ## Units, contracts, every state of small worlds, 20,000 fault schedules, one paid pass: Go alone, 4 to 7 minutes
	go test -vet=off -cover -timeout 60m -run Campaign ./pkg/x402
	go test -vet=off -cover -timeout 60m -skip Campaign ./pkg/x402 ./pkg/x402/reconcile ./pkg/x402/ledger ./pkg/service
	cd infra/house && $(GOTEST) -vet=off -count=1 $(TESTFLAGS) ./...
	$(GOTEST) -race -vet=off -short -timeout 60m $(TESTFLAGS) $(QUICK)

.PHONY: verify
verify: node-packages ## Everything else in CI: real peers, namespaces, browser, load, the judge: 17 minutes
	$(GOTEST) -race -vet=off -timeout 60m $(TESTFLAGS) $(VERIFY)
	cd infra/cdk && $(GOTEST) -race -count=1 -vet=off -timeout 60m $(TESTFLAGS) ./...
	cd infra/deploy && $(GOTEST) -race -count=1 -vet=off -timeout 60m $(TESTFLAGS) ./...
	cd infra/paymcp && $(GOTEST) -race -count=1 -vet=off -timeout 60m $(TESTFLAGS) ./...
	cd infra/shop && $(GOTEST) -race -count=1 -vet=off -timeout 60m $(TESTFLAGS) ./...

.PHONY: check
check: ## Formatting, vet, lint, module tidiness and workflows
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not gofmt'd:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	go vet ./... && go vet -tags prove ./infra
	go mod tidy -diff
	for m in $(MODULES); do (cd $$m && go vet ./... && go mod tidy -diff) || exit 1; done
	cd infra/shop && go vet ./testdata/late
	go run $(ACTIONLINT) -shellcheck= -pyflakes=
	go run $(GOLANGCI) run ./...
	cd infra/cdk && go run $(GOLANGCI) run ./...
	cd infra/deploy && go run $(GOLANGCI) run ./...
	cd infra/house && go run $(GOLANGCI) run ./...
	cd infra/paymcp && go run $(GOLANGCI) run ./...

.PHONY: build
build: ## Build every function to build/<slug>/bootstrap
##   ARCH=arm64        for this processor (default: this machine's)
##   RELEASE=...       a name that makes the binaries new ones
	@for f in $(FUNCTIONS); do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) go build $(BUILD_FLAGS) -o build/$$f/bootstrap ./functions/$$f || exit 1; \
		wc -c < build/$$f/bootstrap | awk -v f=$$f -v arch=$(ARCH) '{printf "  %-18s %s  %5.2f MB\n", f, arch, $$1 / 1000000}'; \
	done

.PHONY: release
release: ## Build the functions for arm64 and pack them into build/release: the same bytes everywhere (Linux)
##   RELEASE=v1.2.0    the version
	@[[ "$$RELEASE" =~ ^v[0-9]+\.[0-9]+\.[0-9]+$$ ]] || { echo "usage: make release RELEASE=v1.2.0" >&2; exit 2; }
	@$(MAKE) --no-print-directory build ARCH=arm64
	@rm -rf build/release && mkdir -p build/release && set -o pipefail && \
		tar -C build --mtime="@$$(git log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner --mode=0755 \
			-c $(sort $(FUNCTIONS:%=%/bootstrap)) | gzip -n > "build/release/hostfacts-$$RELEASE-arm64.tar.gz" && \
		cd build/release && sha256sum -- *.tar.gz | tee SHA256SUMS

.PHONY: local-invoke
local-invoke: ## Build a function and send it an event as Lambda would, signed where it costs play money
##   FN=dns            the function
##   EVENT=...         the event (default: events/FN.json)
##   SAM=1             by sam local invoke, in Docker
	@test -n "$$FN" || { echo "usage: make local-invoke FN=dns [EVENT=events/dns.json]" >&2; exit 2; }
	@for f in $(FUNCTIONS); do test "$$f" = "$$FN" && exit 0; done; echo "there is no function $$FN; there are: $(FUNCTIONS)" >&2; exit 2
	@CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) go build $(BUILD_FLAGS) -o "build/trial/$$FN/function" "./functions/$$FN"
	@CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) go build $(BUILD_FLAGS) -o "build/trial/$$FN/bootstrap" ./infra/local/invoke
	@go run ./infra/local/invoke -build build/trial -fn "$$FN" $${EVENT:+-event "$$EVENT"} $(if $(SAM),-sam)

.PHONY: bench
bench: node-packages build ## Measure beside what others use; write infra/bench/table.md: 12 minutes
##   RUNS=15           lookups of each operation, and rounds of requests; a third as many of most (default: 15)
##   RTT=50ms          how far away everything is (default: 50ms)
##   RECORDS=1000000   payments in the largest ledger (default: 1000000)
	@go build -o build/bench ./infra/bench && go build -o build/local ./infra/local && \
		{ [ "$$(uname)" != Linux ] || go test -vet=off -c -o build/simnet.test ./infra/simnet; } && \
		build/bench table -rtt "$${RTT:-50ms}" -runs "$${RUNS:-15}" -records "$${RECORDS:-1000000}"

.PHONY: microbench
microbench: ## Run every Go benchmark
	go test -vet=off -timeout 60m -run '^$$' -bench . -benchmem $$(grep -rl --include='*_test.go' '^func Benchmark' pkg infra/local | xargs -n1 dirname | sort -u | sed 's,^,./,')

.PHONY: fuzz
fuzz: ## Run every fuzz target
##   FUZZTIME=1m       how long each one runs (default: 1m)
	@grep -rEl '^func Fuzz' --include=*_test.go pkg infra | xargs -n1 dirname | sort -u | while read -r d; do \
		grep -hoE '^func Fuzz[A-Za-z0-9_]*' $$d/*_test.go | sed 's/func //' | while read -r f; do \
			echo "== $$d $$f"; go test ./$$d -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) || exit 1; \
		done || exit 1; \
	done

.PHONY: update
update: ## Write what is made of the catalog and the pages: documents, template, events; then read the diff
	@(cd infra/house && go test -vet=off -run '^(TestPrograms|TestMinified|TestPictures)$$' . -update)
	@for i in 1 2 3; do go test -vet=off ./infra/sam ./pkg/lookup ./pkg/discovery -update >/dev/null || true; done # a document is made of another; what fails fails again below
	@go test -vet=off ./infra/sam ./pkg/lookup ./pkg/discovery

.PHONY: stats
stats: ## Measure the Go code: size, density by package, complexity, circles of folders
	@cd infra/house && go test -vet=off -count=1 -run '^TestStats$$' -stats.print

.PHONY: campaign
campaign: ## Run random schedules of faults over the payment layer
##   N=1000000         how many (default: 1000000)
##   SEED=0            the first of them (default: 0)
	go test ./pkg/x402 -run '^TestCampaign$$' -count=1 -timeout 0 -v -campaign.n="$${N:-1000000}" -campaign.seed="$${SEED:-0}" -campaign.progress

.PHONY: storm
storm: ## Kill the processes of a shop while it sells by a facilitator that lies; judge every transfer: 3 to 6 minutes
##   N=1000            how many purchases (default: 1000)
##   SEED=1            seed of the faults and the clients (default: 1)
	cd infra/shop && go test ./storm -run '^TestStorm$$' -count=1 -timeout 0 -v -storm.n="$${N:-1000}" -storm.seed="$${SEED:-1}"

.PHONY: gameday
gameday: ## Break everything once; print what clients see and which alarms go off (Linux)
	@mkdir -p build && go test -c -o build/gameday.test ./infra/gameday && \
		cd infra/gameday && ../../build/gameday.test -test.run '^TestGameDay$$' -test.v

.PHONY: prove
prove: node-packages ## Prove what CI does not: lists of others, newest linters, mutants, a million schedules; write infra/prove/table.md: 45 minutes
##   PART=linters      this part alone: linters, lists (2 minutes), printed, runbook, lighthouse, mutants or campaign (default: all)
	@go build -o build/local ./infra/local && go build -o build/pay ./infra/local/pay
	@cmp -s infra/prove/requirements.txt build/prove/installed || { python3 -m venv --clear build/prove && \
		build/prove/bin/pip install -q --disable-pip-version-check -r infra/prove/requirements.txt && \
		cp infra/prove/requirements.txt build/prove/installed; }
	@build/prove/bin/python -B infra/prove/prove.py $${PART:+"$$PART"}

.PHONY: screenshots
screenshots: node-packages ## Write build/screenshots, one of each state of the pages, and those of the README
	go test ./infra/clients -run '^TestBrowser$$' -count=1 -timeout 60m -update-screenshots

.PHONY: schemathesis
schemathesis: ## Send generated requests to a service and hold the answers to its OpenAPI
##   URL=...           its origin (default: http://127.0.0.1:8402)
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
sam-build: ## Build for deployment with the SAM CLI, each time as a new release
	CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath -tags=lambda.norpc '-ldflags=-s -buildid=$$(date +%s)'" sam build

.PHONY: deploy
deploy: ## Make a deployment what infra/stacks/STACK.toml says, and ask it whether it is
##   STACK=...         the name of the file, without .toml
##   YES=1             do not ask before it is deployed
	@test -n "$$STACK" || { echo "usage: make deploy STACK=name [YES=1]; the file is infra/stacks/name.toml" >&2; exit 2; }
	@cd infra/deploy && go run . deploy $${YES:+-yes="$$YES"} -- "$$STACK"

.PHONY: rollback
rollback: ## Put back the code of the release before, with the parameters of today's file
##   STACK=...         the name of the file
##   TO=...            this commit (default: that of the release before)
##   YES=1             do not ask before it is deployed
	@test -n "$$STACK" || { echo "usage: make rollback STACK=name [TO=commit] [YES=1]" >&2; exit 2; }
	@cd infra/deploy && go run . rollback $${YES:+-yes="$$YES"} $${TO:+-to="$$TO"} -- "$$STACK"

.PHONY: check-stack
check-stack: ## Check infra/stacks/STACK.toml as make deploy does, and deploy nothing
##   STACK=...         the name of the file
	@test -n "$$STACK" || { echo "usage: make check-stack STACK=name" >&2; exit 2; }
	@cd infra/deploy && go run . check -- "$$STACK"

.PHONY: smoke
smoke: ## After a deployment: is it what its file says, is it ready, and is a paid ping answered
##   STACK=...         the name of the file
##   ORIGIN=https://... in the place of STACK: a deployment without a file
##   KEY_FILE=...      pay real money with the private key in this file
##   YES=1             do not ask before real money is paid
	@test -n "$$STACK$$ORIGIN" || { echo "usage: make smoke STACK=name [KEY_FILE=...], or ORIGIN=https://api.example.com" >&2; exit 2; }
	@test -z "$$STACK" || ORIGIN="$$(cd infra/deploy && go run . smoke -- "$$STACK")" || exit 1; \
		CALLED_BY=make go run ./infra/local/operate smoke "$$ORIGIN" && \
		CALLED_BY=make go run ./infra/local/pay -max 0.001 $${KEY_FILE:+-key-file "$$KEY_FILE"} $${YES:+-yes="$$YES"} -- "$${ORIGIN%/}/v1/tools/ping"

.PHONY: mark-ledger
mark-ledger: ## Write into the table LEDGER_TABLE that it is the ledger of a stack
##   STACK_NAME=...    the stack
##   PAY_TO=0x...      its payee
##   ORIGIN=https://... where it is reached, if it has no BASE_URL
##   FORCE=1           also when it is marked for another payee
	@CALLED_BY=make go run ./infra/local/operate mark-ledger $(if $(FORCE),-force) $${ORIGIN:+"$$ORIGIN"}

.PHONY: try-page
try-page: ## Say who hears of a stack's alarms, and send them a page and a ticket that say that they are a drill
##   STACK_NAME=...    the stack
	@CALLED_BY=make go run ./infra/local/operate try-page

.PHONY: restore
restore: ## Restore the ledger's table (LEDGER_TABLE) as another one
##   TO=...            the name of the copy (default: the table's, with -copy or -drill behind it)
##   AT=...            the time to restore, 2026-11-20T08:00:00Z (default: the latest there is)
##   DRILL=1           delete the copy when it has been looked at
	@CALLED_BY=make go run ./infra/local/operate restore $${TO:+-to "$$TO"} $${AT:+-at "$$AT"} $(if $(DRILL),-drill)

.PHONY: backup
backup: ## Write a copy of the ledger file, also while a service has it open
##   LEDGER_FILE=...   the ledger (default: .local/ledger.db)
##   TO=...            the copy; nothing is overwritten (default: the ledger's name and the time)
	@CALLED_BY=make go run ./infra/local/operate backup $${TO:+"$$TO"}

# These six look at the file of make run, also while it runs, or with LEDGER_TABLE at a
# table; RPC_URL lets them ask the chain. By CALLED_BY their messages say what to type next.
.PHONY: reconcile
reconcile: ## Look once at every payment in doubt
	@CALLED_BY=make go run ./infra/local/operate reconcile

.PHONY: owed
owed: ## List what is owed to whom, and what is in doubt
##   JSON=1            print JSON
	@CALLED_BY=make go run ./infra/local/operate owed $(if $(JSON),-json)

.PHONY: payer
payer: ## Say what there is of one wallet, and what that adds up to
##   WALLET=0x...      the wallet
##   JSON=1            print JSON
	@test -n "$$WALLET" || { echo "usage: make payer WALLET=0x... [JSON=1]" >&2; exit 2; }
	@CALLED_BY=make go run ./infra/local/operate payer $(if $(JSON),-json) "$$WALLET"

.PHONY: refund
refund: ## Say what to pay back for a payment
##   KEY='...'         the payment, as make owed prints it
##   TRANSACTION=0x... close the debt on this transaction
##   FORCE=1           also when the chain does not confirm it; without TRANSACTION, withdraw a refund
	@test -n "$$KEY" || { echo "usage: make refund KEY='eip155:8453|0x...|0x...|0x...' [TRANSACTION=0x...] [FORCE=1]; make owed prints keys" >&2; exit 2; }
	@CALLED_BY=make go run ./infra/local/operate refund $(if $(FORCE),-force) "$$KEY" $${TRANSACTION:+"$$TRANSACTION"}

.PHONY: answered
answered: ## Close a debt that was answered before the ledger was restored
##   KEY='...'         the payment, as make owed prints it
##   TRANSACTION=0x... the transaction that paid for it, as the log of the answer has it
##   FORCE=1           also when a refund of it was begun
	@test -n "$$KEY" || { echo "usage: make answered KEY='eip155:8453|0x...|0x...|0x...' TRANSACTION=0x... [FORCE=1]; make owed prints keys" >&2; exit 2; }
	@CALLED_BY=make go run ./infra/local/operate answered $(if $(FORCE),-force) "$$KEY" "$$TRANSACTION"

.PHONY: books
books: ## Compare the payments of a day on the chain with the ledger; fails where they differ
##   DAY=2026-11-20    the day, in UTC
##   JSON=1            print JSON
	@test -n "$$DAY" || { echo "usage: make books DAY=2026-11-20 [JSON=1]" >&2; exit 2; }
	@CALLED_BY=make go run ./infra/local/operate books $(if $(JSON),-json) "$$DAY"

.PHONY: secret
secret: ## Show, make or change the secret of FacilitatorSecretArn; asks for the value, and keeps the rest
##   NAME=...          its name, which begins with that of the stack, or its ARN
##   SET=token         change this of it, or key, rpc_urls, receipt_key
##   UNSET=...         take one of these out
##   FILE=...          read the value from this file (default: it is asked for)
##   YES=1             do not ask before it is written
	@test -n "$$NAME" || { echo "usage: make secret NAME=hostfacts-production-facilitator [SET=token|key|rpc_urls|receipt_key] [UNSET=...] [FILE=...]" >&2; exit 2; }
	@CALLED_BY=make go run ./infra/local/secret -name "$$NAME" $${SET:+-set "$$SET"} $${UNSET:+-unset "$$UNSET"} $${FILE:+-file "$$FILE"} $${YES:+-yes="$$YES"}

.PHONY: sign-origin
sign-origin: ## Sign an origin as its payee, offline; asks for the key
##   ORIGIN=https://... the origin
##   PAY_TO=0x...      the payee, to compare the key with
##   KEY_FILE=...      read the key from this file (default: it is asked for)
	@test -n "$$ORIGIN" || { echo "usage: make sign-origin ORIGIN=https://api.example.com [PAY_TO=0x...] [KEY_FILE=...]" >&2; exit 2; }
	@go run ./infra/local/keys sign-origin -origin "$$ORIGIN" $${PAY_TO:+-pay-to "$$PAY_TO"} $${KEY_FILE:+-key-file "$$KEY_FILE"}

.PHONY: receipt-key
receipt-key: ## Make a key that signs receipts
##   RECEIPT_PUBLIC_KEYS=... the keys that are published so far
	@go run ./infra/local/keys receipt-key
