// Package nemesis runs several processes that decide on one real Redis, and
// makes that fail: it is killed, stopped, paused, flushed, cut off, slowed down,
// and loses its primary. What the processes admitted is recorded and held against
// I1 and I16, and that everybody is answered in time. It has no code of its own.
package nemesis
