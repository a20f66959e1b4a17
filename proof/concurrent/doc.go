// Package concurrent tests that what goroutines do at once has an order (I11):
// one that respects real time, and in which the pure step gives the same
// answers one after another. The clock stands still while they run. It has no
// code of its own.
package concurrent
