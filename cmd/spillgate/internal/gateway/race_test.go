//go:build race

package gateway_test

// raced divides what is large: the race detector knows 8,128 goroutines at most.
const raced = 10
