module github.com/spillgate/spillgate/bench

go 1.26.0
