// Package nemesis runs several processes that decide on real Redis servers, and
// makes those fail: they are killed, stopped, paused, flushed, cut off, slowed down,
// and lose their primary, alone, with a replica, and as a cluster. What the processes
// were told is recorded and held against I1, I11 and I16, and that everybody is answered
// in time. It has no code of its own.
package nemesis
