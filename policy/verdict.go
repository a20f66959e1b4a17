package policy

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate"
)

// An Outcome is what one rule says of a request.
type Outcome struct {
	Rule     *Rule
	Decision spillgate.Decision
	// Override is the override by which the rule refused, or which set the
	// limit that was asked; nil if there was none.
	Override *Override
	// Peeked reports that the rule was only asked, not charged.
	Peeked bool
	// Trial reports that the rule spares this key: it never refuses it.
	Trial bool

	// In an order that leaves no gaps: a verdict is copied for each request.
	from    origin
	own     bool             // the program settled it by itself
	line    int32            // of the list that names the caller
	index   int32            // of the rule
	meter   *spillgate.Meter // of the override's limit
	charged int64            // units that stand charged now; of a rule that refuses, those that it would have
	keep    int64            // units that stay for better lanes
	key     spillgate.Key
}

// origin says where a charge was taken, and so where it is settled.
type origin uint8

const (
	fromStore origin = iota
	fromLocal
	fromNowhere
)

// Refuses reports whether this rule is one of those that refuse the request.
func (o *Outcome) Refuses() bool { return !o.Decision.Allowed && !o.Trial }

// WouldRefuse reports whether this rule would refuse the request, which passes it
// only since the rule spares this key (enforce).
func (o *Outcome) WouldRefuse() bool { return !o.Decision.Allowed && o.Trial }

// Judged reports whether a limit was asked at all: not by a rule that denies
// everything, nor by one that lets pass while the store fails. Without it the
// decision's numbers mean nothing.
func (o *Outcome) Judged() bool { return o.from != fromNowhere }

// Cost returns how many units of the rule's limit a request that it refuses, or on
// trial would, was to cost; 0 if no limit was asked, or the key is blocked.
func (o *Outcome) Cost() int64 {
	if o.Decision.Allowed || !o.Judged() {
		return 0
	}
	return o.charged
}

const inline = 3

// A Verdict is what the policy says of one request. It is a value; after the
// work is done it is settled through its methods, which are not for
// concurrent use, and which do nothing on a nil or zero Verdict.
type Verdict struct {
	// Allowed reports whether the request may pass.
	Allowed bool

	tentative bool  // a refusal is not the last word
	quiet     bool  // it may be said again, so who is refused is noted later
	diverts   bool  // a refused request may take its backup
	code      uint8 // of gRPC with which the request ends, plus one; 0 if none is known
	n         int16 // at most MaxRules

	// Fault is not nil if the store could not answer and the rules' own word
	// for that case was applied. It wraps [spillgate.ErrUnavailable].
	Fault error

	// Held is how long [Engine.Await] held the request.
	Held time.Duration

	engine *Engine
	at     time.Time
	err    error // why nothing was decided
	closed *Rule // the first that refused since the store can't answer
	exempt *Rule
	backup *Backup // where the request goes that the rules refuse

	exemption *Override
	first     [inline]Outcome
	more      []Outcome
}

// begin makes v the verdict on a request that nothing was said of yet.
func (v *Verdict) begin(e *Engine) {
	clear(v.first[:min(v.Len(), inline)])
	clear(v.more)
	v.Allowed, v.Fault, v.Held, v.engine, v.at, v.err, v.closed, v.exempt, v.n, v.more = true, nil, 0, e, time.Time{}, nil, nil, nil, 0, v.more[:0]
	v.exemption, v.backup, v.tentative, v.quiet, v.diverts, v.code = nil, nil, false, false, false, 0
}

// alone makes v a refusal by what is said next and by nothing else.
func (v *Verdict) alone() {
	v.cut(0)
	v.Allowed = false
}

// cut takes back all that was said after the first n outcomes.
func (v *Verdict) cut(n int) {
	clear(v.first[min(n, inline):min(v.Len(), inline)])
	v.more = v.more[:max(0, n-inline)]
	v.n, v.Allowed, v.Fault, v.err, v.closed = int16(n), true, nil, nil, nil
}

// add makes room for what one more rule says.
func (v *Verdict) add() *Outcome {
	if v.n++; v.n > inline {
		v.more = append(v.more, Outcome{})
	}
	return v.Outcome(v.Len() - 1)
}

// room makes room for what n more rules say, at once.
func (v *Verdict) room(n int) {
	if beyond := v.Len() + n - inline; beyond > len(v.more) {
		v.more = slices.Grow(v.more, beyond-len(v.more))
	}
}

// Len returns how many rules applied.
func (v *Verdict) Len() int {
	if v == nil {
		return 0
	}
	return int(v.n)
}

// nothing is what no rule says: it has no name, and refuses nobody.
var nothing = Outcome{Rule: new(Rule), Decision: spillgate.Decision{Allowed: true}, from: fromNowhere}

// Outcome returns what the i-th rule that applied says, from 0 to below
// [Verdict.Len], in the policy's order. Beyond these it is an outcome that
// refuses nobody, of a rule without a name.
func (v *Verdict) Outcome(i int) *Outcome {
	switch {
	case uint(i) >= uint(v.Len()):
		return &nothing
	case i < inline:
		return &v.first[i]
	}
	return &v.more[i-inline]
}

// Of returns what the rule of that name says, nil if it did not apply.
func (v *Verdict) Of(rule string) *Outcome {
	for i := range v.Len() {
		if o := v.Outcome(i); o.Rule.Name == rule {
			return o
		}
	}
	return nil
}

// Refusing returns the first rule that refuses, nil if none does.
func (v *Verdict) Refusing() *Outcome {
	for i := range v.Len() {
		if o := v.Outcome(i); o.Refuses() {
			return o
		}
	}
	return nil
}

// RetryAfter returns the longest wait of all rules that refuse: waiting it is
// enough. It is 0 if none does, [spillgate.Never] if no wait helps.
func (v *Verdict) RetryAfter() time.Duration {
	var wait time.Duration
	for i := range v.Len() {
		if o := v.Outcome(i); o.Refuses() {
			wait = max(wait, o.Decision.RetryAfter)
		}
	}
	return wait
}

// Delay returns how long an allowed request has to wait before it goes on.
func (v *Verdict) Delay() time.Duration {
	var wait time.Duration
	for i := range v.Len() {
		if o := v.Outcome(i); !o.Trial {
			wait = max(wait, o.Decision.Delay)
		}
	}
	return wait
}

// A DeniedError says which rule refused a request and when to come back. It
// wraps [spillgate.ErrDenied].
type DeniedError struct {
	Rule       string        // the first rule that refuses
	RetryAfter time.Duration // the longest wait of all that refuse
	err        error
}

// Error names the rule and the wait.
func (e *DeniedError) Error() string {
	if e.RetryAfter == spillgate.Never {
		return fmt.Sprintf("policy: rule %q: denied; waiting does not help", e.Rule)
	}
	return fmt.Sprintf("policy: rule %q: denied; retry after %s", e.Rule, e.RetryAfter)
}

// Unwrap returns the refusing decision's error.
func (e *DeniedError) Unwrap() error { return e.err }

// FaultAnswer returns what the first rule that refused since the store can't
// answer says of that ([Rule.FaultAnswer]), nil if it says nothing, or none did.
func (v *Verdict) FaultAnswer() *Answer {
	if v == nil || v.closed == nil {
		return nil
	}
	return v.closed.FaultAnswer
}

// Err returns nil if the request may pass, a [*DeniedError] if a rule refuses
// it, and otherwise why nothing could be decided: an error that wraps
// [spillgate.ErrUnavailable], [spillgate.ErrCost] or the context's.
func (v *Verdict) Err() error {
	switch {
	case v == nil || v.Allowed:
		return nil
	case v.err != nil:
		return v.err
	}
	o := v.Refusing()
	if o == nil {
		return fmt.Errorf("policy: %w: nothing was decided", spillgate.ErrDenied)
	}
	return &DeniedError{Rule: o.Rule.Name, RetryAfter: v.RetryAfter(), err: o.Decision.Err()}
}

// Peek asks how the rule stands now for this request's caller, and charges
// nothing. ok is false if the rule did not apply to the request, or the store
// can't answer.
func (v *Verdict) Peek(ctx context.Context, rule string) (d spillgate.Decision, ok bool) {
	o := v.Of(rule)
	if o == nil || !o.Judged() {
		return d, false
	}
	cs := [1]spillgate.Charge{{Space: v.engine.spaces[o.index], Key: o.key, Meter: v.engine.meter(o), Ask: spillgate.Ask{Keep: o.keep}}}
	var out [1]spillgate.Decision
	if err := v.store(o.from).Take(ctx, v.at, cs[:], out[:]); err != nil {
		return d, false
	}
	return out[0], true
}

func (v *Verdict) store(from origin) spillgate.Store {
	if from == fromLocal {
		return v.engine.local
	}
	return v.engine.store
}

// Spent replaces the estimate: units of that kind were charged for this
// request, and actual is what it used in truth. Using more is never refused
// and may leave a caller in debt; what was over-reserved is back at once.
// Spent may be called again with a new truth. It is an error that wraps
// [ErrRule] if no rule of the policy counts that unit, [spillgate.ErrCost] if
// actual is negative, or the store's.
func (v *Verdict) Spent(unit string, actual int64) error {
	if v == nil || v.engine == nil {
		return nil
	}
	if actual < 0 {
		return fmt.Errorf("policy: %w: spent %d %s: an amount used is never negative", spillgate.ErrCost, actual, unit)
	}
	if !slices.ContainsFunc(v.engine.policy.plain, func(r Rule) bool { return r.unit() == unit }) {
		return fmt.Errorf("policy: %w: no rule counts %q", ErrRule, unit)
	}
	return v.settle(v.own(func(o *Outcome) bool { return o.Rule.unit() == unit }), actual, false)
}

// GiveBack returns what this request was charged by the rules of these names,
// or by all rules if none is named. It is an error that wraps [ErrRule] if the
// policy has no rule of a name, or the store's.
func (v *Verdict) GiveBack(rules ...string) error {
	if v == nil || v.engine == nil {
		return nil
	}
	for _, name := range rules {
		if !slices.ContainsFunc(v.engine.policy.plain, func(r Rule) bool { return r.Name == name }) {
			return fmt.Errorf("policy: %w: there is no rule %q", ErrRule, name)
		}
	}
	return v.settle(v.own(func(o *Outcome) bool { return len(rules) == 0 || slices.Contains(rules, o.Rule.Name) }), 0, false)
}

// Aborted is the outcome of a request whose client went away before there was
// an answer. It counts as a failure of every rule: else a client could take
// its tries back by leaving.
const Aborted = "aborted"

// Ended says how the request ended: an HTTP status ("200"), a gRPC code
// ("OK"), "error" or [Aborted]. Rules that count only failures give their charge back
// unless it, or what [Verdict.Code] noted, is one of theirs. A front calls it; a handler that called
// [Verdict.Spent] or [Verdict.GiveBack] before has settled already. The error
// is the store's.
func (v *Verdict) Ended(outcome string) error {
	return v.settle(func(o *Outcome) bool {
		return len(o.Rule.Failures) > 0 && !o.own && o.charged > 0 && !v.failed(o.Rule, outcome)
	}, 0, false)
}

// Done says that the work is over: it frees the slots that the request holds.
// What was charged otherwise stands.
func (v *Verdict) Done() {
	// The store heals slots by their expiry, so a fault here loses nothing.
	_ = v.settle(func(*Outcome) bool { return true }, 0, true)
}

// until returns when what stands charged alone would have been earned back.
func (e *Engine) until(o *Outcome) spillgate.Instant {
	d := &o.Decision
	more := e.meter(o).Limit().Earn(o.charged - d.Taken) // settled up since
	for _, wait := range [2]time.Duration{d.ResetAfter, more} {
		if wait == spillgate.Never {
			return math.MaxInt64
		}
	}
	if at := d.At + spillgate.Instant(d.ResetAfter) + spillgate.Instant(more); at >= d.At {
		return at
	}
	return math.MaxInt64
}

// passes reports whether the request goes on, be it to a backup, and so was
// charged.
func (v *Verdict) passes() bool { return v.Allowed || v.backup != nil }

// settle corrects the charges of the chosen rules to actual units.
// Slots are held until the work is over, so only [Verdict.Done] settles them.
func (v *Verdict) settle(which func(*Outcome) bool, actual int64, slots bool) error {
	var err error
	for i := range v.Len() {
		o := v.Outcome(i)
		if o.from == fromNowhere || o.Peeked || !o.Decision.Allowed || !v.passes() || actual == o.charged || slots != v.engine.holds(o) || !which(o) {
			continue
		}
		cs := [1]spillgate.Correction{{
			Space: v.engine.spaces[o.index], Key: o.key, Meter: v.engine.meter(o), Delta: actual - o.charged,
			At: o.Decision.At, Slot: o.Decision.Slot, Until: v.engine.until(o), Overflow: o.Decision.Overflow,
		}}
		// The context of a request is often over when its work is; a
		// correction is sent all the same, under the store's own budget.
		if e := v.store(o.from).Settle(context.Background(), v.at, cs[:]); e != nil {
			err = e
			continue
		}
		if o.charged = actual; cs[0].Delta < 0 {
			v.engine.lines.returned(o)
		}
	}
	return err
}

// meter returns the meter that an outcome was charged by.
func (e *Engine) meter(o *Outcome) *spillgate.Meter {
	if o.meter != nil {
		return o.meter
	}
	return e.policy.rules[o.index].meter
}

// holds reports whether an outcome holds slots.
func (e *Engine) holds(o *Outcome) bool {
	return e.meter(o).Limit().Algorithm == spillgate.Concurrency
}

type contextKey struct{}

// A Loan is a context that carries a verdict in memory that its front wants to
// use again when the request is over. [FromContext] finds the verdict until then,
// and whoever has asked for it keeps it for good. Not to be copied.
type Loan struct {
	context.Context
	verdict *Verdict
	state   atomic.Uint32
}

// What became of a loan.
const (
	lent  uint32 = iota // nobody has asked for it
	asked               // somebody may use it for ever
	over
)

// Lend makes l carry v, in ctx.
func (l *Loan) Lend(ctx context.Context, v *Verdict) { l.Context, l.verdict = ctx, v }

// Return ends the loan. It reports whether nobody asked for the verdict, and
// nobody will get it, so that its memory can be used again.
func (l *Loan) Return() bool { return l.state.CompareAndSwap(lent, over) }

// Value returns the verdict to [FromContext].
func (l *Loan) Value(key any) any {
	if key != (contextKey{}) {
		return l.Context.Value(key)
	}
	if l.state.CompareAndSwap(lent, asked) || l.state.Load() == asked {
		return l.verdict
	}
	return (*Verdict)(nil)
}

// NewContext returns a context that carries v.
func NewContext(ctx context.Context, v *Verdict) context.Context {
	return context.WithValue(ctx, contextKey{}, v)
}

// FromContext returns the verdict under which a request runs, nil if there is
// none, and also if it is asked for the first time when the request is over. The
// methods of a nil verdict do nothing.
func FromContext(ctx context.Context) *Verdict {
	v, _ := ctx.Value(contextKey{}).(*Verdict)
	return v
}
