package httplimit

import (
	"encoding/binary"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/policy"
)

// shared is what both kinds of middleware know.
type shared struct {
	options
	canonical map[string]string
	journal   *policy.Journal
	paths     policy.Paths
}

// sharedOf is what the middleware for p's rules knows.
func sharedOf(p *policy.Policy, opts []Option) *shared {
	s := &shared{options: optionsOf(opts), canonical: canonical(p.Rules()), paths: p.Paths()}
	s.naming.anyCase = s.paths.AnyCase // such servers take names of parameters so, too
	return s
}

// an exchange is the memory of one request's decision, reused unless a handler
// asked for the verdict.
type exchange struct {
	attributes
	verdict policy.Verdict
	opts    []policy.Option

	// For a Limiter:
	decision spillgate.Decision
	key      []byte
}

var exchanges = sync.Pool{New: func() any { return &exchange{key: make([]byte, 0, 128)} }}

func (x *exchange) free() {
	x.request, x.shared = nil, nil
	clear(x.opts)
	exchanges.Put(x)
}

// New limits each caller by lim; [User] says which options tell callers apart.
// It never waits, except that a request admitted by a [spillgate.Queue] is
// held for as long as the queue says, or until lim is closed, as at a stop:
//
//	server.RegisterOnShutdown(func() { lim.Close() })
//
// A slot of a [spillgate.Concurrency] limit
// is freed when the handler returns, or when the connection that it took over
// (Hijack) is closed.
func New(lim *spillgate.Limiter, opts ...Option) func(http.Handler) http.Handler {
	l := limited{shared: &shared{options: optionsOf(opts)}, limiter: lim, quota: new(atomic.Pointer[quota])}
	if len(l.sources) == 0 {
		ClientIP()(&l.options)
	}
	l.journal = policy.NewJournal(l.log, l.name)
	if l.partitions {
		seed := spillgate.NewSeed()
		l.names = &seed
	}
	return func(next http.Handler) http.Handler {
		l := l
		l.next = next
		return &l
	}
}

// limited is a handler behind a Limiter.
type limited struct {
	*shared
	limiter *spillgate.Limiter
	quota   *atomic.Pointer[quota]
	names   *spillgate.Seed // of callers, for PartitionKeys; nil if they are not told
	next    http.Handler
}

func (l *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := exchanges.Get().(*exchange)
	x.begin(l.shared, r)
	key := l.keyOf(x)
	n := int64(1)
	if len(l.costs) > 0 {
		n = l.costs[0].of(r)
	}
	x.decision = l.limiter.Take(key, n)
	d := &x.decision
	if !d.Allowed {
		l.refuse(w, r, key, d)
		x.free()
		return
	}
	if d.Delay > 0 {
		var a *ahead
		if a, r = aheadOf(r); a != nil {
			defer a.leave(w)
		}
		a.start()
		if err := l.limiter.Hold(r.Context(), d.Delay); err != nil {
			l.limiter.GiveBack(key, *d)
			x.free()
			l.undecided(w, r, err, nil)
			return
		}
	}
	if l.headers == Always {
		var room [1]told
		l.announce(new(fields), w.Header(), r, l.tell(room[:0], key, d), false)
	}
	if d.Slot == 0 {
		x.free()
		l.next.ServeHTTP(w, r)
		return
	}
	l.hold(w, r, func() {
		l.limiter.GiveBack(key, *d)
		x.free()
	})
}

// tell appends what d tells the caller of that key: nothing if there is no
// limit.
func (l *limited) tell(ts []told, key string, d *spillgate.Decision) []told {
	limit := l.limiter.Limit()
	if limit.Algorithm == spillgate.Unlimited {
		return ts
	}
	q := l.quota.Load()
	if q == nil || q.limit != limit {
		unit := ""
		if len(l.costs) > 0 {
			unit = l.costs[0].unit
		}
		q = quotaOf(l.name, unit, limit)
		q.bySource = true
		l.quota.Store(q)
	}
	t := told{quota: q, decision: d}
	if l.names != nil {
		var name [8]byte
		binary.BigEndian.PutUint64(name[:], l.names.Key([]byte(key))[0])
		t.setPartition(name)
	}
	return append(ts, t)
}

// keyOf returns the key of the first source that the request has. It is good
// until x is freed: a Limiter keeps no key.
func (l *limited) keyOf(x *exchange) string {
	k := append(x.key[:0], "none:"...)
	for i := range l.sources {
		s := &l.sources[i]
		if s.get != nil {
			if v := s.get(x.request); v != "" {
				k = append(append(k[:0], s.label...), v...)
				break
			}
		} else if addr := x.addr(); addr.IsValid() {
			k = append(k[:0], s.label...)
			if addr.Is4() {
				k = addr.AppendTo(k)
			} else {
				k = clientip.Group(addr, 0, l.prefix).AppendTo(k)
			}
			break
		}
	}
	x.key = k
	return text(k)
}

// Policy limits requests by the rules of eng's policy, with the attributes
// that the options offer. An admitted request is held for the verdict's Delay.
func Policy(eng *policy.Engine, opts ...Option) func(http.Handler) http.Handler {
	rules := eng.Policy().Rules()
	p := policed{shared: sharedOf(eng.Policy(), opts), engine: eng, quotas: quotasOf(rules), others: new(others), room: newRoom(maxLooked), holds: slices.ContainsFunc(rules, holds)}
	p.journal = eng.Journal(p.log)
	return func(next http.Handler) http.Handler {
		p := p
		p.next = next
		return &p
	}
}

// holds reports whether r may hold requests.
func holds(r policy.Rule) bool { return r.Delay.Most > 0 || r.Limit.Algorithm == spillgate.Queue }

// policed is a handler behind a policy.
type policed struct {
	*shared
	engine *policy.Engine
	quotas map[*policy.Rule]*quota
	others *others
	room   *room // of bodies that are looked at
	holds  bool  // a rule may hold requests
	next   http.Handler
}

// carried is what an admitted request takes along: the context in which its
// handler runs, the text of its fields and the request with that context, in one
// object. The verdict is lent: few handlers ask for it.
type carried struct {
	policy.Loan
	fields  fields
	request http.Request
}

// with returns r in the context c, without a copy of its own: WithContext's
// stays on the stack.
func (c *carried) with(r *http.Request) *http.Request {
	c.request = *r.WithContext(c)
	return &c.request
}

func (p *policed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := exchanges.Get().(*exchange)
	x.begin(p.shared, r)
	x.opts = x.opts[:0]
	for i := range p.costs {
		c := &p.costs[i]
		x.opts = append(x.opts, policy.Cost(c.unit, c.of(r)))
	}
	if p.backup != nil {
		x.opts = append(x.opts, policy.UseBackup())
	}
	call, r := p.meter(x, w, r)
	if r == nil {
		x.free()
		return
	}
	if call != nil {
		defer forget(r.Body)
	}
	var body *ahead
	if p.holds {
		if body, r = aheadOf(r); body != nil {
			defer body.leave(w)
			x.opts = append(x.opts, policy.OnHold(body.start))
		}
	}
	v := &x.verdict
	p.engine.Await(r.Context(), v, &x.attributes, x.opts...)
	p.journal.Fault("store unavailable", v.Fault)
	if !v.Allowed {
		if v.Backup() == nil {
			p.refuse(w, r, v)
			x.free()
			return
		}
		spare := *p
		spare.next = p.backup
		p = &spare
	}
	if d := v.Delay(); d > 0 {
		body.start()
		if err := p.engine.Hold(r.Context(), d); err != nil {
			p.settled(v.GiveBack())
			v.Done()
			x.free()
			p.undecided(w, r, err, nil)
			return
		}
	}
	if p.bare && v.Allowed {
		if p.headers == Always {
			p.tellOn(new(fields), w, r, v)
		}
		if !p.serve(w, r, v, call) {
			x.free()
		}
		return
	}
	c := new(carried)
	c.Lend(r.Context(), v)
	if p.headers == Always && v.Allowed {
		p.tellOn(&c.fields, w, r, v)
	}
	if !p.serve(w, c.with(r), v, call) && c.Return() {
		x.free()
	}
}

// tellOn tells of v in an answer that is not a refusal.
func (p *policed) tellOn(f *fields, w http.ResponseWriter, r *http.Request, v *policy.Verdict) {
	var room [8]told
	p.announce(f, w.Header(), r, p.tell(room[:0], v), false)
}

// unsettled reports what of v is still open until the request ends.
func unsettled(v *policy.Verdict) (failures, slots bool) {
	for i := range v.Len() {
		o := v.Outcome(i)
		failures = failures || len(o.Rule.Failures) > 0 && !o.Peeked
		slots = slots || o.Decision.Slot != 0
	}
	return failures, slots
}

func (p *policed) settled(err error) {
	p.journal.Fault("verdict not settled", err)
}
