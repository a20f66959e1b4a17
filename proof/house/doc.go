// Package house holds the rules that keep this repository simple, as tests:
// who may import whom, what go.mod files may say, which documents must be true,
// and what no source file may contain. Run them with `make house`, never from
// the test cache: go test notices changes only inside the module under test.
package house
