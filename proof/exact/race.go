//go:build race

package exact

// Raced reports that the race detector is on, which makes arithmetic that
// knows no concurrency ten times as slow: such tests then do less.
const Raced = true
