package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillgate/spillgate"
)

// A Penalty blocks a key that a rule has refused too often: whoever is told to
// wait and asks again and again is shut out for a time. The zero Penalty is
// none.
//
// What counts are refusals by the rule's own limit. Peeks don't, nor does what
// another rule refuses, a key that the rule spares, a request that lacks a part
// of the key, or what the bucket refuses that newcomers to a full table share:
// none of these is the key's own doing. Requests of a blocked key count for
// nothing, so asking on does not prolong a block.
type Penalty struct {
	// After that many refusals of a key within Within it is blocked, 1 to
	// [MaxAfter].
	After int64
	// Within is the window, 1 ms to 366 days: any of that length, exactly.
	Within time.Duration
	// Block is how long, in whole milliseconds: from Within to 366 days. It is
	// not shorter than the window, so that what led to a block is forgotten
	// when that ends.
	Block time.Duration
	// Grow multiplies each further block of a key, 1 to 100; 0 means 1.
	Grow int64
	// Most is the longest that a block grows to, at most 366 days; 0 means a
	// day, or Block if that is longer.
	Most time.Duration
	// Forget is how long after the beginning of its last block a key's next
	// one is its first again, from Most to 366 days; 0 means twice Most.
	Forget time.Duration
}

// MaxAfter is how many refusals a [Penalty] counts at most.
const MaxAfter = 1000

// longest is the longest period of anything, and so of a block.
const longest = 366 * 24 * time.Hour

// Filled returns p with its defaults filled in.
func (p Penalty) Filled() Penalty {
	p.Grow = max(p.Grow, 1)
	if p.Most == 0 {
		p.Most = max(24*time.Hour, p.Block)
	}
	if p.Forget == 0 {
		p.Forget = min(2*p.Most, longest)
	}
	return p
}

// lasts returns how long the n-th block in a row lasts, n from 1.
func (p *Penalty) lasts(n int64) time.Duration {
	d := p.Block
	for ; n > 1 && p.Grow > 1; n-- {
		if d > p.Most/time.Duration(p.Grow) {
			return p.Most
		}
		d *= time.Duration(p.Grow)
	}
	return min(d, p.Most)
}

// check reports all that is wrong with r's penalty. What hangs on a value that
// is wrong is held against what is advised to write in its place, so that one
// slip is one error.
func (p Penalty) check(r *Rule, bad func(error)) {
	switch {
	case r.Deny:
		bad(errors.New("a rule that denies refuses everybody already; remove one of them"))
		return
	case r.Limit.Algorithm == spillgate.Unlimited:
		bad(errors.New("unlimited refuses nobody, so nobody is ever blocked; remove one of them"))
		return
	case len(r.Key) == 0:
		bad(errors.New("the rule has no key, so one caller would block all; say what tells callers apart"))
	}
	if p.After < 1 || p.After > MaxAfter {
		bad(fmt.Errorf("after %d: must be from 1 to %d refusals", p.After, MaxAfter))
	}
	checked := func(what string, d, least time.Duration) time.Duration {
		good := max(least, min(longest, d.Round(time.Millisecond)))
		if d != good {
			bad(fmt.Errorf("%s %s: want whole milliseconds, from %s to %s; write %s", what, period(d), period(least), period(longest), period(good)))
		}
		return good
	}
	within := checked("within", p.Within, time.Millisecond)
	if p.Block < p.Within {
		bad(fmt.Errorf("block %s is shorter than within %s, so what led to a block would still count when it ends; write %s, or a shorter window", period(p.Block), period(p.Within), period(within)))
		p.Block = within
	}
	p.Block = checked("block", p.Block, within)
	switch {
	case p.Grow < 0 || p.Grow > 100:
		bad(fmt.Errorf("grow %d: must be from 1 to 100", p.Grow))
	case p.Grow <= 1 && (p.Most != 0 || p.Forget != 0):
		bad(errors.New("most and forget say nothing without grow; add grow: 2, or remove them"))
		return
	}
	p.Most = checked("most", p.Filled().Most, p.Block)
	checked("forget", p.Filled().Forget, p.Most)
}

// period writes d as a policy does, in the largest unit that it is whole in.
func period(d time.Duration) string {
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		if d >= u.unit && d%u.unit == 0 {
			return fmt.Sprintf("%d%s", d/u.unit, u.name)
		}
	}
	return d.String()
}

// A block is a charge in a space of its own: as many units as it lasts
// milliseconds, of a bucket that earns one a millisecond and holds the longest
// block there is. So it ends at one instant, and whether a key is blocked is a
// charge too, that needs a full bucket and takes nothing.
var blockLimit = spillgate.Limit{Rate: 1000, Period: time.Second, Burst: longest.Milliseconds()}

// Bounds of what a penalty keeps, each at most as many keys as the rule's own
// table. Where they are reached, the key that is nearest to being forgotten
// makes room: a bucket that newcomers share would block who did nothing.
const (
	maxRefusals = 1 << 20 // remembered refusals of all keys of a rule
	maxCounted  = 1 << 16 // keys whose refusals are
	maxRepeats  = 1 << 16 // keys whose earlier blocks are remembered
)

// Further worlds of a rule, whose names no rule can have.
const (
	refusalsSpace = "/refusals"
	blocksSpace   = "/blocks"
	repeatsSpace  = "/repeats"
)

// penalty is a rule's Penalty at work.
type penalty struct {
	Penalty
	refusals, blocks, repeats *spillgate.Space
	count, block, repeat      *spillgate.Meter
	list                      blockList
}

// newPenalty prepares a penalty that check has nothing against. It is nil if
// the process has made too many limits.
func newPenalty(r *Rule, track int) *penalty {
	p := &penalty{Penalty: r.Penalty.Filled()}
	keys := r.Table().MaxKeys
	space := func(name string, most int, ttl time.Duration) *spillgate.Space {
		sp, _ := spillgate.NewSpace(r.Name+name, spillgate.SpaceOptions{MaxKeys: min(keys, most), AtCap: spillgate.MakeRoom, TTL: ttl})
		return sp
	}
	p.refusals = space(refusalsSpace, int(min(maxCounted, maxRefusals/p.After)), 0)
	p.blocks = space(blocksSpace, spillgate.DefaultMaxKeys, 0)
	p.repeats = space(repeatsSpace, maxRepeats, p.Forget)
	for _, m := range []struct {
		meter **spillgate.Meter
		limit spillgate.Limit
	}{
		{&p.count, spillgate.Limit{Algorithm: spillgate.SlidingLog, Rate: p.After, Period: p.Within}},
		{&p.block, blockLimit},
		{&p.repeat, spillgate.Limit{Period: time.Second, Burst: 1 << 30}}, // counts up to its ttl
	} {
		meter, err := m.limit.Meter()
		if err != nil {
			return nil
		}
		*m.meter = meter
	}
	p.list.most = track
	return p
}

// addPenalties prepares the penalties of e's rules; before is its store, if
// that outlives the process.
func (e *Engine) addPenalties(before resumer, track int) {
	for i := range e.policy.plain {
		r := &e.policy.plain[i]
		if r.Penalty == (Penalty{}) {
			continue
		}
		p := newPenalty(r, track)
		if p == nil {
			continue
		}
		if e.penalties == nil {
			e.penalties = make([]*penalty, len(e.policy.rules))
		}
		e.penalties[i], e.counts = p, e.store
		if l, leased := e.store.(interface{ Inner() spillgate.Store }); leased {
			e.counts = l.Inner() // a log is never leased
		}
		if before != nil {
			_ = before.Resume(p.refusals, p.count) // as for the rule itself
			_ = before.Resume(p.blocks, p.block)
			_ = before.Resume(p.repeats, p.repeat)
		}
	}
}

// gate appends the charge that asks whether key is blocked, after that of the
// i-th rule. Of all charges only these need more than they take.
func (e *Engine) gate(s *scratch, i int, key spillgate.Key) {
	p := e.penalties[i]
	s.charge(i, spillgate.Charge{
		Space: p.blocks, Key: key, Meter: p.block, Ask: spillgate.Ask{Need: blockLimit.Burst},
	})
}

// foldGate adds what a gate says to the outcome of its rule, which is the last.
func (e *Engine) foldGate(v *Verdict, s *scratch, i int, d *spillgate.Decision) {
	if d.Allowed {
		return
	}
	o, rule := v.Outcome(v.Len()-1), s.index[i]
	listed := !o.Decision.Allowed
	o.block(d.RetryAfter)
	v.Allowed = false
	if !listed && !v.quiet {
		e.note(v, &s.request, rule, o.key, &o.Decision, false)
	}
	e.penalties[rule].list.refused(o.key, v.now(), d.RetryAfter, func() []byte {
		return s.appendText(s.key[:0], e.policy.rules[rule].Key, &e.prints)
	})
}

// block makes o that of a key which is shut out so long.
func (o *Outcome) block(wait time.Duration) {
	d := &o.Decision
	d.Allowed, d.Reason, d.Taken, d.Remaining, o.charged = false, spillgate.Blocked, 0, 0, 0
	d.RetryAfter, d.ResetAfter = max(d.RetryAfter, wait), max(d.ResetAfter, wait)
}

// now returns the instant of the verdict on this machine's clock.
func (v *Verdict) now() time.Time {
	if v.at.IsZero() {
		return time.Now()
	}
	return v.at
}

// penalise counts the refusals of those rules that have a penalty, and blocks
// the keys that have had too many. A store that fails here counts nothing: the
// request is decided.
func (e *Engine) penalise(ctx context.Context, v *Verdict, s *scratch) {
	for i := range s.charges {
		if s.charges[i].Need > 0 && !s.decisions[i].Allowed {
			return
		}
	}
	for i := 1; i < len(s.charges) && v.err == nil; i++ {
		if d := &s.decisions[i-1]; s.charges[i].Need > 0 && !d.Allowed && !d.Overflow {
			e.count(ctx, v, s, s.index[i])
		}
	}
}

// count counts one refusal by the i-th rule.
func (e *Engine) count(ctx context.Context, v *Verdict, s *scratch, i int) {
	var o *Outcome
	for j := range v.Len() {
		if o = v.Outcome(j); int(o.index) == i && o.from == fromStore && o.Refuses() {
			break
		}
	}
	p := e.penalties[i]
	d, ok := e.takeOne(ctx, v, s, e.counts, p.refusals, o.key, p.count, spillgate.Ask{N: 1})
	if !ok || !d.Allowed || d.Remaining > 0 {
		return
	}
	times := int64(1)
	if p.Grow > 1 {
		if d, ok := e.takeOne(ctx, v, s, e.store, p.repeats, o.key, p.repeat, spillgate.Ask{N: 1}); ok {
			times = d.Limit - d.Remaining
		} else if v.err != nil {
			return
		}
	}
	lasts := p.lasts(times)
	// All that the bucket holds has to be there: a key that is blocked already
	// is not blocked for longer.
	ask := spillgate.Ask{N: lasts.Milliseconds(), Keep: blockLimit.Burst - lasts.Milliseconds()}
	d, ok = e.takeOne(ctx, v, s, e.store, p.blocks, o.key, p.block, ask)
	if !ok {
		return
	}
	if !d.Allowed {
		lasts = d.RetryAfter
	}
	o.block(lasts)
	p.list.add(o.key, v.now(), lasts, times, s.appendText(s.key[:0], e.policy.rules[i].Key, &e.prints))
}

// takeOne takes one charge by itself. It reports false if the store fails. One
// that can't carry out such charges at all is not passed over: the verdict is
// its error.
func (e *Engine) takeOne(ctx context.Context, v *Verdict, s *scratch, from spillgate.Store, sp *spillgate.Space, key spillgate.Key, m *spillgate.Meter, q spillgate.Ask) (spillgate.Decision, bool) {
	s.one[0] = spillgate.Charge{Space: sp, Key: key, Meter: m, Ask: q}
	err := from.Take(ctx, v.at, s.one[:], s.said[:])
	if errors.Is(err, spillgate.ErrCharge) {
		v.alone()
		v.err = fmt.Errorf("policy: penalty: %w", err)
	}
	return s.said[0], err == nil
}

// KeyOf returns the key that the rule of that name has for a request with
// these attributes, for [Engine.Free]. The error wraps [ErrRule] if there is no
// such rule, or if the attributes lack a part of its key.
func (e *Engine) KeyOf(rule string, who Attributes) (spillgate.Key, error) {
	i, err := e.ruleOf(rule)
	if err != nil {
		return spillgate.Key{}, err
	}
	s := e.scratch.Get().(*scratch)
	defer func() {
		s.end(e.prints.hides)
		e.scratch.Put(s)
	}()
	s.begin(who, e.policy.slots)
	s.key = s.key[:0]
	parts := e.policy.rules[i].Key
	for p := range parts {
		if !s.appendKey(&parts[p]) {
			return spillgate.Key{}, fmt.Errorf("policy: %w: rule %q tells callers apart by %s, which is missing", ErrRule, rule, parts[p])
		}
	}
	return e.seed.Key(s.key), nil
}

func (e *Engine) ruleOf(name string) (int, error) {
	for i := range e.policy.plain {
		if e.policy.plain[i].Name == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("policy: %w: there is no rule %q", ErrRule, name)
}

// Free ends the block of a key, and forgets those that it had before, so that
// the next one is its first again. It reports whether the key was blocked. The
// refusals that led to the block are not forgotten, but can't lead to another
// one; for what is left of their window further ones don't count.
//
// The key is that of [Engine.Blocked], or of [Engine.KeyOf]. The error wraps
// [ErrRule] if there is no such rule or it has no penalty, or is the store's.
func (e *Engine) Free(ctx context.Context, rule string, key spillgate.Key) (blocked bool, err error) {
	i, err := e.ruleOf(rule)
	if err != nil {
		return false, err
	}
	if e.penalties == nil || e.penalties[i] == nil {
		return false, fmt.Errorf("policy: %w: rule %q has no penalty, and blocks nobody", ErrRule, rule)
	}
	p := e.penalties[i]
	gate := [1]spillgate.Charge{{Space: p.blocks, Key: key, Meter: p.block, Ask: spillgate.Ask{Need: blockLimit.Burst}}}
	var out [1]spillgate.Decision
	if err := e.store.Take(ctx, time.Time{}, gate[:], out[:]); err != nil {
		return false, fmt.Errorf("policy: %w", err)
	}
	if err := e.store.Settle(ctx, time.Time{}, []spillgate.Correction{
		{Space: p.blocks, Key: key, Meter: p.block, Delta: -blockLimit.Burst, At: out[0].At},
		{Space: p.repeats, Key: key, Meter: p.repeat, Delta: -p.repeat.Limit().Burst, At: out[0].At},
	}); err != nil {
		return false, fmt.Errorf("policy: %w", err)
	}
	p.list.remove(key)
	return !out[0].Allowed, nil
}
