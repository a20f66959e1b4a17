module github.com/spillgate/spillgate/examples

go 1.26.0
