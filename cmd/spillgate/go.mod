module github.com/spillgate/spillgate/cmd/spillgate

go 1.26.0

require (
	github.com/spf13/cobra v1.10.2
	github.com/spillgate/spillgate v0.0.0
	github.com/spillgate/spillgate/policyfile v0.0.0
)

require (
	github.com/coder/websocket v1.8.15 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/rogpeppe/go-internal v1.16.0 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	go.uber.org/goleak v1.3.0 // indirect
)
