module github.com/spillgate/spillgate

go 1.26.0
