package usage

import "sync/atomic"

// Weights say how much of a unit a token costs, in percent.
type Weights struct{ Input, Cached, Written, Output, Reasoning int64 }

// A Spec says how calls are paid for.
type Spec struct {
	Format  *Format // of answers
	Request *Format // of requests; nil if they don't say how long an answer may be
	Input   InputEstimate
	Output  OutputEstimate
	Weights Weights
	Keep    bool // an error costs the estimate too
}

// of weighs tokens. It rounds up.
func (w *Weights) of(c *Counts) int64 {
	special := min(c.Cached+c.Written, c.Input)
	cached := min(c.Cached, special)
	reasoning := min(c.Reasoning, c.Output)
	// Each product is below 2^47, since counts are at most 32 times 2^30 and
	// weights at most 10,000; so is their sum.
	n := (c.Input-special)*w.Input + cached*w.Cached + (special-cached)*w.Written +
		(c.Output-reasoning)*w.Output + reasoning*w.Reasoning
	return n/100 + min(1, n%100)
}

// An Account pays for the calls of one kind: it knows what the last ones took,
// and adds up how estimates fared. It is safe for concurrent use.
type Account struct {
	Spec
	past     recent
	tally    [ends]atomic.Int64
	reserved atomic.Int64
	over     atomic.Int64
	back     atomic.Int64
}

// How a call ended.
const (
	Told   = iota // the answer said all
	Untold        // it said nothing, or not all: an estimate stood for the rest
	Absurd        // it said what can't be: the estimate stood
	Opaque        // it could not be read: the estimate stood
	Cut           // it broke off: what was not told was estimated
	Free          // it was an error that said nothing: nothing was charged
	ends
)

// Estimate returns the parts of what a request is to reserve.
func (a *Account) Estimate(q Asked) Estimate {
	c := Counts{Input: a.Input.of(q.Size), Output: a.Output.of(q.Most, &a.past)}
	return Estimate{c.Input, c.Output, a.Weights.of(&c)}
}

// An Estimate is what a call is thought to cost: tokens in and out, and the
// units that they weigh.
type Estimate struct{ Input, Output, Units int64 }

// An Answer is how a call ended: the status of its answer, 0 if none began;
// whether it came to its end; and what it told.
type Answer struct {
	Status int
	Whole  bool
	Counts
}

// Settle returns the units that a call cost in truth, for which e was reserved.
// What the answer does not tell is estimated, and never below what it does.
func (a *Account) Settle(e Estimate, r Answer) int64 {
	c := r.Counts
	told := c.InputTold || c.OutputTold
	how := Told
	units := e.Units
	switch {
	case c.Absurd:
		how = Absurd
		units = max(units, a.Weights.of(&c))
	case !told && r.Status >= 400 && r.Status != 504 && !a.Keep:
		// At 504 nobody knows what the provider did.
		how, units = Free, 0
	case !told && c.Opaque:
		how = Opaque
	default:
		input := c.InputTold || !a.Format.tells(Input)
		output := c.Final || c.Kept && r.Whole || !a.Format.tells(Output)
		switch {
		case !r.Whole && !(input && output):
			how = Cut
		case !(input && output):
			how = Untold
		}
		if !input {
			c.Input = max(c.Input, e.Input)
		}
		if !output {
			c.Output = max(c.Output, e.Output)
		}
		if told {
			units = a.Weights.of(&c)
		}
		if told && output && a.Format.tells(Output) {
			a.past.add(c.Output)
		}
	}
	a.tally[how].Add(1)
	a.reserved.Add(e.Units)
	if d := units - e.Units; d > 0 {
		a.over.Add(d)
	} else {
		a.back.Add(-d)
	}
	return units
}

// Totals are what became of the calls since the account was made.
type Totals struct{ Told, Untold, Absurd, Opaque, Cut, Free, Reserved, Over, Back int64 }

// Totals returns them.
func (a *Account) Totals() Totals {
	n := func(how int) int64 { return a.tally[how].Load() }
	return Totals{n(Told), n(Untold), n(Absurd), n(Opaque), n(Cut), n(Free), a.reserved.Load(), a.over.Load(), a.back.Load()}
}
