// Package simulation runs engines on several nodes that share one store, all of
// it simulated and decided by a seed: when messages arrive, which are lost on
// the way there or back, when the store stops, hangs, forgets or is cut off,
// what the clocks show. Time is virtual. What is checked after each step is I1,
// I14, I15 and I16, that no decision takes longer than its budget, that nothing is
// sent twice, and that nothing is spent before it is paid.
//
// A seed that fails is the report of a bug: run the test with -seed to see it
// again.
package simulation
