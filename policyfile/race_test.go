//go:build race

package policyfile

// raced makes large inputs smaller: the race detector makes reading ten times
// slower, and has nothing to look at in it.
const raced = 10
