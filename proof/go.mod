module github.com/spillgate/spillgate/proof

go 1.26.0
