# flash: see README.md. Both `make demo` and `make test` install what is missing and work offline once they have run.
GO ?= go
export CGO_ENABLED = 0

# What flash needs of Debian at run time, and what its tests use besides.
PACKAGES := qemu-system-x86 qemu-utils e2fsprogs mmdebstrap busybox-static
AGENT := vmm/guest/agentbin/bin/agent-amd64

.PHONY: all build agent deps s3-server demo demo-s3 test vet cross bench meta fuzz test-kvm clean

all: build

build: agent
	$(GO) build -trimpath -o bin/flash ./cli/flash

agent:
	GOOS=linux GOARCH=amd64 $(GO) build -trimpath -ldflags '-s -w' -o $(AGENT) ./vmm/guest/agent

# Asks dpkg first, so that a machine that has everything needs no network and no root.
deps:
	@missing=; for p in $(PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then echo "installing$$missing"; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; fi

# The S3 server of tests and demo-s3: built from source, by name and version, into the user's cache folder, once.
s3-server:
	@FLASH_REQUIRE=vm $(GO) test ./cas/bucket/buckettest -count 1 -timeout 20m -run 'S3ServerIsInstalled'

demo: deps build
	@bin/flash demo run 21

# The same kind of story with object storage: a real S3 server on loopback, and a second host.
demo-s3: deps s3-server build
	@bin/flash demo run 22

vet: agent
	$(GO) vet ./...

# Every other platform must at least build and vet.
cross:
	GOOS=darwin GOARCH=arm64 $(GO) vet ./...
	GOOS=windows GOARCH=amd64 $(GO) vet ./...
	GOOS=linux GOARCH=arm64 $(GO) vet ./...

# Packages run one after another: guests under emulation are hungry, and two at once is what two cores bear.
test: deps s3-server build vet cross
	FLASH_REQUIRE=vm $(GO) test -p 1 -timeout 20m ./...

# The model tests for as long as you like: make meta SECONDS=3600. A failure prints the seed that repeats it.
SECONDS ?= 300
meta:
	$(GO) test ./store -timeout 0 -run 'AnyHistory' -count 1 -v -seconds $(SECONDS)
	$(GO) test ./store -timeout 0 -run 'APowerCut' -count 1 -v -cutseconds $(SECONDS)
	$(GO) test ./store/offsite -timeout 0 -run 'AnyHistory|Killed' -count 1 -v -seconds $(SECONDS) -everywhere
	$(GO) test ./store -timeout 0 -run 'FlippedByteInTheDatabase' -count 1 -v -flips 1000
	FLASH_REQUIRE=meta $(GO) test ./cas/bucket/s3 -timeout 20m -run 'AnotherServer' -count 1 -v

# Every fuzzer of the module, one after another: make fuzz FUZZTIME=10m; some of them: FUZZ='Layer|Decode'. It ends at the
# first finding and says where the input lies; committed there it is a seed, which every go test runs.
FUZZTIME ?= 1m
FUZZ ?= Fuzz
fuzz: agent
	@found=$$($(GO) test -list '^Fuzz' ./...) || { echo "$$found"; exit 1; }; \
	echo "$$found" | awk '/^Fuzz/ { names[++n] = $$1 } /^ok/ { for (i = 1; i <= n; i++) print $$2, names[i]; n = 0 }' | grep -E ' .*($(FUZZ))' | { \
		count=0; while read -r pkg name; do \
			echo "== $$pkg $$name"; \
			$(GO) test $$pkg -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 50x -parallel 1 </dev/null || { \
				echo "$$name found something: the input is the newest file in $${pkg#flash/}/testdata/fuzz/$$name; it runs again with go test ./$${pkg#flash/} -run $$name"; exit 1; }; \
			count=$$((count + 1)); \
		done; echo "$$count fuzzers, nothing found"; test $$count -gt 0; }

# The tests that can run on an emulated machine with a kernel of 2022 and a KVM that works: test binaries, built here. It
# sees this folder, read-only.
KVM_TESTS := memtrack memtrack/pagemap memtrack/uffd vmm/qemu vmm/host

test-kvm: deps agent
	@mkdir -p bin/kvm
	@for p in $(KVM_TESTS); do $(GO) test -c -o bin/kvm/$$(basename $$p).test ./$$p || exit 1; done
	$(GO) run ./vmm/vmmtest/nested -m 4096 -t 570 sh vmm/vmmtest/nested/tests.sh

bench: deps build
	bin/flash bench

clean:
	rm -rf bin vmm/guest/agentbin/bin/agent-*
