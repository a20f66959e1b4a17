// Package spillgate decides whether a request may pass now, and says exactly
// why not and when to come back.
//
// The simplest use is a [Limiter]: one limit, many keys, in memory.
//
//	logins := spillgate.Must("1/10s burst 10")
//	if d := logins.Take(ip, 1); !d.Allowed {
//		return tryAgain(d.RetryAfter)
//	}
//
// Larger programs write rules in a policy (package policy), which turns every
// request into one [Charge] a rule. A [Store] takes all charges of a request
// or none of them. [Memory] is the store of one machine.
//
// # Arithmetic
//
// Every decision is made in integers, to the nanosecond: three a second is
// three a second for ever, after any idle time and whatever the clock does.
// The step that decides is pure ([Meter.Take]); memory, other stores, replay
// and tests share it. Time is always an argument; there is no clock interface.
//
// # Keys
//
// A key's text never reaches a store. It is digested with SipHash-1-3 under a
// secret [Seed], so nobody who lacks the seed can aim two keys at one bucket.
package spillgate
