module github.com/spillgate/spillgate/cmd/spillgate

go 1.26.0
