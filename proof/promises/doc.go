// Package promises tests what the engine promises, each promise as a property
// over random histories: conformance and no lost capacity (I1, I2), retry,
// remaining and reset to the nanosecond (I3 to I5), that what is denied is
// nothing (I6), time (I7), monotony (I8), independence (I9), forgetting (I10),
// all or none (I14) and change (I19). It has no code of its own.
package promises
