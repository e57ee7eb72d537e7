GO ?= go
export CGO_ENABLED = 0

.PHONY: build agent test

build: agent
	$(GO) build -o bin/flash ./cli/flash

agent:
	GOOS=linux GOARCH=amd64 $(GO) build -trimpath -ldflags '-s -w' -o vmm/guest/agentbin/bin/agent-amd64 ./vmm/guest/agent

test: agent
	$(GO) vet ./...
	$(GO) test ./...
