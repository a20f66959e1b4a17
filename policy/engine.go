package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/internal/topk"
	"github.com/spillgate/spillgate/internal/usage"
)

// An Engine decides requests by a policy, on a store. It is safe for
// concurrent use.
type Engine struct {
	policy *Policy
	spaces []*spillgate.Space // one a rule
	store  spillgate.Store
	seed   spillgate.Seed

	local  *spillgate.Memory // decides while the store can't
	shares atomic.Pointer[shares]

	lists []*topk.List // who is limited, one a rule; nil if nobody asked for it

	penalties []*penalty      // one a rule, nil for those without; nil if none has one
	counts    spillgate.Store // that counts their refusals

	overrides atomic.Pointer[bound]
	binding   sync.Mutex // held by SetOverrides
	others    map[madeLimit]*spillgate.Meter

	prints fingerprints
	lines  lines // of those who are held

	accounts []*usage.Account // one a usage
	decoders usage.Decoders

	closing  sync.Mutex
	journals []*Journal

	scratch sync.Pool // of *scratch
}

// An EngineOption shapes an [Engine].
type EngineOption func(*engineOptions)

type engineOptions struct {
	seed  spillgate.Seed
	nodes int
	track int

	fingerprint []byte
	decoders    usage.Decoders
}

// Seeded keys the digests of callers with seed, which all engines that share a
// store must have in common. Without it the seed is that of the store, if it
// has one, as [spillgate.Memory] does, also behind a [spillgate.Leased], or else
// random. With it an engine finds its callers in a snapshot that was restored
// only if it was given the same seed before.
func Seeded(seed spillgate.Seed) EngineOption {
	return func(o *engineOptions) { o.seed = seed }
}

// Nodes says how many engines share the store, at least 1, at first; see also
// [Engine.SetNodes]. While the store fails, each decides for its n-th part of every
// limit whose rule says [Local].
func Nodes(n int) EngineOption {
	return func(o *engineOptions) { o.nodes = max(1, n) }
}

// A resumer is a store that outlives its process: it has a seed by which its
// keys are found again, and wants to know which limits are in force now.
type resumer interface {
	Seed() spillgate.Seed
	Resume(*spillgate.Space, *spillgate.Meter) error
}

// resumerOf returns s as a resumer, or the first store behind it that is one:
// where a store keeps its states in another, as [spillgate.Leased] does, that
// one is what outlives the process. It is nil if none is.
func resumerOf(s spillgate.Store) resumer {
	for {
		if r, ok := s.(resumer); ok {
			return r
		}
		outer, ok := s.(interface{ Inner() spillgate.Store })
		if !ok {
			return nil
		}
		s = outer.Inner()
	}
}

// NewEngine makes an engine that decides by p on s. What s has restored of a
// rule, known by its name, goes on: if the rule has another limit now, what
// was earned up to now counts under the old one. What another engine counted on
// the same Memory is that engine's alone; a snapshot of it, restored into a new
// one, takes it over to an engine of another policy.
func NewEngine(p *Policy, s spillgate.Store, opts ...EngineOption) *Engine {
	o := engineOptions{nodes: 1, track: DefaultTracked}
	for _, opt := range opts {
		opt(&o)
	}
	before := resumerOf(s)
	switch {
	case o.seed != (spillgate.Seed{}):
	case before != nil:
		o.seed = before.Seed()
	default:
		o.seed = spillgate.NewSeed()
	}
	e := &Engine{policy: p, store: s, seed: o.seed, local: spillgate.NewMemory()}
	e.lines.ended = make(chan struct{})
	e.prints.init(p, o.fingerprint, o.seed)
	e.accounts, e.decoders = accountsOf(p), o.decoders
	for i := range p.rules {
		r := &p.rules[i]
		space, _ := spillgate.NewSpace(r.Name, r.space()) // checked by Compile
		e.spaces = append(e.spaces, space)
		if before != nil {
			_ = before.Resume(space, r.meter) // fails if s is closed, which every charge says
		}
		e.lines.any = e.lines.any || r.Delay.Most > 0
		if o.track > 0 {
			e.lists = append(e.lists, topk.New(o.track))
		}
	}
	e.shares.Store(&shares{nodes: o.nodes})
	e.addPenalties(before, o.track)
	_ = e.SetOverrides(p.overrides) // fails if there are too many limits in the process
	e.scratch.New = func() any {
		return p.newScratch()
	}
	return e
}

// Policy returns the policy that e decides by.
func (e *Engine) Policy() *Policy { return e.policy }

// scratch is the memory of one decision, reused.
type scratch struct {
	request
	index     []int // of the rule of each charge
	keys      []digest
	exempt    []int // groups that the request is exempt from
	charges   []spillgate.Charge
	decisions []spillgate.Decision

	over overriding

	one  [1]spillgate.Charge // a charge by itself, and what was said of it
	said [1]spillgate.Decision
}

func (p *Policy) newScratch() *scratch {
	s := &scratch{request: request{buf: make([]byte, 0, 256), key: make([]byte, 0, 256)}, keys: make([]digest, p.sameKeys)}
	s.cache.anyCase = p.paths.AnyCase
	return s
}

// An Option says more about one decision.
type Option struct {
	unit string
	cost int64
	at   time.Time
	only string // the unit of the rules to ask
	held func() // called when the request is held

	tentative bool // a refusal is not the last word
	diverts   bool // a refused request may take its backup
}

// Cost charges n units to the rules that count in unit, in place of their own
// cost. A negative cost makes the verdict an error that wraps
// [spillgate.ErrCost]. A unit that no rule counts is no error, since a program
// says what its requests cost under whatever policy: a misspelt one leaves rules
// at their own cost. [Verdict.Spent] tells.
func Cost(unit string, n int64) Option { return Option{unit: unit, cost: n} }

// At decides at t instead of now, as replay does. Times come from one clock
// and do not flow back.
func At(t time.Time) Option { return Option{at: t} }

// Decide charges the request to all rules that match, or to none, and returns
// the verdict. The context bounds the store's work, not the verdict's life.
func (e *Engine) Decide(ctx context.Context, attrs Attributes, opts ...Option) Verdict {
	var v Verdict
	e.DecideInto(ctx, &v, attrs, opts...)
	return v
}

// DecideInto is [Engine.Decide] for fronts that keep verdicts in memory of
// their own. What v held before is gone, also from copies of v.
func (e *Engine) DecideInto(ctx context.Context, v *Verdict, attrs Attributes, opts ...Option) {
	e.decide(ctx, v, attrs, opts, nil)
}

// decide decides about a request; h is how it is held, if it may be.
func (e *Engine) decide(ctx context.Context, v *Verdict, attrs Attributes, opts []Option, h *held) {
	v.begin(e)
	for i := range opts {
		if !opts[i].at.IsZero() {
			v.at = opts[i].at
		}
		v.tentative = v.tentative || opts[i].tentative
		v.diverts = v.diverts || opts[i].diverts
	}
	v.quiet = v.tentative || h != nil
	s := e.scratch.Get().(*scratch)
	s.begin(attrs, e.policy.slots)
	asks := e.collect(v, s, opts)
	switch {
	case h != nil && len(s.charges) > 0 && asks:
		e.takeInTurn(ctx, v, s, h)
	case h != nil:
		h.leave(v.Allowed)
	case len(s.charges) > 0 && asks:
		e.take(ctx, v, s)
		if !v.quiet {
			e.divert(ctx, v, s)
		}
	}
	if v.quiet && v.Allowed && (h == nil || h.place == nil) {
		e.noteRefused(v, s) // by rules on trial: who passes is told nothing else
	}
	s.end(e.prints.hides)
	s.index, s.charges, s.decisions = s.index[:0], s.charges[:0], s.decisions[:0]
	e.scratch.Put(s)
}

// collect turns the rules that match into charges. It reports false if a rule
// refuses by itself, so that nothing is left to ask.
func (e *Engine) collect(v *Verdict, s *scratch, opts []Option) bool {
	if s.over.begin(e.overrides.Load()); s.over.bound != nil && !e.override(v, s) {
		return false
	}
	found, only := e.policy.index.find(&s.request), onlyOf(opts)
	e.policy.exempts(v, s, found)
	for i := nextRule(found, 0); i >= 0; i = nextRule(found, i+1) {
		r := &e.policy.rules[i]
		if r.Exempt || s.spares(r) || only != "" && r.unit() != only {
			continue
		}
		peeked := len(r.peek) > 0 && s.meets(r.peek, true)
		if !peeked && !s.meets(r.rest, false) {
			continue
		}
		var by *exception
		if len(s.over.applied) > 0 {
			if by = s.over.of(i); by.exempts() {
				v.exempts(by)
				continue
			}
		}
		key, whole := e.keyOf(s, r)
		if !whole && r.Missing == Skip {
			continue
		}
		trial := e.policy.off || int(key[1]%100) < r.Spare
		if by.blocks() && !peeked {
			if !e.block(v, s, i, key, by, trial) {
				return false
			}
			continue
		}
		if !peeked && (r.Deny || !whole && r.Missing == Refuse) {
			d := spillgate.Decision{Reason: spillgate.NeverFits, RetryAfter: spillgate.Never}
			o := Outcome{Rule: r.Rule, Decision: d, Trial: trial, from: fromNowhere, index: int32(i), key: key}
			if !trial {
				e.refuse(v, s, o)
				return false
			}
			if *v.add() = o; !v.quiet {
				e.note(v, &s.request, i, key, &d, trial)
			}
			continue
		}
		if s.full(v) {
			return false
		}
		n := int64(0)
		if !peeked {
			if a := s.unknown(r, by); a != nil && !trial {
				v.repeated(a)
				return false
			}
			n = r.cost(&s.request, opts)
		}
		ask := spillgate.Ask{N: n, Keep: r.keep(&s.request)}
		s.charge(i, spillgate.Charge{Space: e.spaces[i], Key: key, Meter: r.meter, Ask: ask, Trial: trial})
		if by.limits() {
			s.over.charge(&s.charges[len(s.charges)-1], by, r, i, len(s.charges)-1)
		}
		if e.penalties != nil && e.penalties[i] != nil && !peeked && whole && !trial {
			e.gate(s, i, key)
		}
	}
	return true
}

// charge adds a charge for the i-th rule.
func (s *scratch) charge(i int, c spillgate.Charge) {
	s.index = append(s.index, i)
	s.charges = append(s.charges, c)
}

// refuse makes o, which refuses by itself and for good, all that v says.
func (e *Engine) refuse(v *Verdict, s *scratch, o Outcome) {
	if v.quiet && !v.tentative {
		e.noteRefused(v, s) // by rules on trial before it
	}
	v.alone()
	if *v.add() = o; !v.tentative {
		e.note(v, &s.request, int(o.index), o.key, &o.Decision, false)
	}
}

// meets reports whether the request meets all conditions.
func (r *request) meets(cs []condition, all bool) bool {
	for i := range cs {
		if !cs[i].holds(r, all) {
			return false
		}
	}
	return true
}

// take asks the store and folds its decisions into v.
func (e *Engine) take(ctx context.Context, v *Verdict, s *scratch) {
	s.decisions = slices.Grow(s.decisions, len(s.charges))[:len(s.charges)]
	clear(s.decisions)
	err := e.store.Take(ctx, v.at, s.charges, s.decisions)
	switch {
	case err == nil:
		v.room(len(s.charges))
		for i := range s.charges {
			e.fold(v, s, i, &s.decisions[i], fromStore)
		}
		if e.penalties != nil && !v.Allowed && !v.quiet {
			e.penalise(ctx, v, s)
		}
	case errors.Is(err, spillgate.ErrCost) || errors.Is(err, spillgate.ErrCharge) || ctx.Err() != nil:
		v.Allowed, v.err = false, fmt.Errorf("policy: %w", err)
	default:
		e.takeFaulty(ctx, v, s, err)
	}
}

// fold adds the decision on charge i to the verdict.
func (e *Engine) fold(v *Verdict, s *scratch, i int, d *spillgate.Decision, from origin) {
	if s.charges[i].Need > 0 {
		e.foldGate(v, s, i, d)
		return
	}
	c, o := &s.charges[i], v.add()
	o.Decision = *d // by itself: in one statement with others it is copied twice
	o.Rule, o.Peeked, o.Trial = e.policy.rules[s.index[i]].Rule, c.N == 0, c.Trial
	o.index, o.key, o.charged, o.keep, o.from = int32(s.index[i]), c.Key, d.Taken, c.Keep, from
	if !d.Allowed {
		o.charged = c.N
	}
	if len(s.over.charges) > 0 {
		s.over.fold(v, s, o, i)
		d = &o.Decision
	}
	if !d.Allowed && !c.Trial {
		v.Allowed = false
	}
	if notable(d) && (d.Allowed || !v.quiet) {
		e.note(v, &s.request, s.index[i], c.Key, d, c.Trial)
	}
}

// takeFaulty decides without the store, by what each rule says. The rules that
// decide locally are charged in this process's memory, all or none.
func (e *Engine) takeFaulty(ctx context.Context, v *Verdict, s *scratch, cause error) {
	v.Fault = cause
	if !errors.Is(cause, spillgate.ErrUnavailable) {
		v.Fault = fmt.Errorf("%w: %w", spillgate.ErrUnavailable, cause)
	}
	if e.foldFault(v, s) {
		return
	}
	local := &scratch{request: s.request}
	shares := e.shares.Load() // of all rules at one moment
	shut := false
	for i := range s.charges {
		c, r := s.charges[i], &e.policy.rules[s.index[i]]
		switch {
		case c.Need > 0: // who is blocked is not known
		case c.Meter == refusal: // folded already
		case r.OnFault == Open || c.Trial:
			e.fold(v, s, i, &spillgate.Decision{Allowed: true, Reason: spillgate.Granted, Limit: r.meter.Limit().Cap()}, fromNowhere)
		case r.OnFault == Shut || shares.by(c.Meter) == nil:
			if !shut {
				v.closed = r.Rule
			}
			shut = true
		default:
			e.localCharge(s, local, i, &c, shares.by(c.Meter))
			local.index = append(local.index, s.index[i])
			local.charges = append(local.charges, c)
		}
	}
	if shut {
		v.Allowed, v.err = false, fmt.Errorf("policy: %w", v.Fault)
		return
	}
	if len(local.charges) == 0 {
		return
	}
	local.decisions = make([]spillgate.Decision, len(local.charges))
	if err := e.local.Take(ctx, v.at, local.charges, local.decisions); err != nil {
		v.Allowed, v.err = false, fmt.Errorf("policy: %w", err)
		return
	}
	for i := range local.charges {
		e.fold(v, local, i, &local.decisions[i], fromLocal)
		v.Outcome(v.Len() - 1).meter = local.charges[i].Meter // whatever the number of nodes is when it is settled
	}
}
