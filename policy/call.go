package policy

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spillgate/spillgate/internal/usage"
)

// A Call is a request that is paid for by usage, from its decision to its end.
// A front asks [Engine.Call] for it before it decides, charges what
// [Call.Reserve] says, shows it the answer on its way, and ends it with
// [Call.Settle]. It is not for concurrent use.
type Call struct {
	parts    []callPart
	head     [1]callPart
	decoders usage.Decoders
	begun    bool // the answer
}

// A callPart is a call in the eyes of one [Usage].
type callPart struct {
	*metered
	account  *usage.Account
	estimate usage.Estimate
	scanner  usage.Scanner
	same     int // the part that reads the answer for this one: itself, or one before it with the same format
	counts   usage.Counts
}

// Call returns the call that a request is, nil if no [Usage] of the policy
// speaks of it.
func (e *Engine) Call(attrs Attributes) *Call {
	all := e.policy.metered
	if len(all) == 0 {
		return nil
	}
	s := e.scratch.Get().(*scratch)
	s.begin(attrs, nil)
	var c *Call
	for i := range all {
		m := &all[i]
		if c != nil && c.pays(m.unit) || !s.meets(m.match, false) {
			continue
		}
		if c == nil {
			c = &Call{decoders: e.decoders}
			c.parts = c.head[:0]
		}
		c.parts = append(c.parts, callPart{metered: m, account: e.accounts[i]})
	}
	s.end(e.prints.hides)
	e.scratch.Put(s)
	return c
}

func (c *Call) pays(unit string) bool {
	for i := range c.parts {
		if c.parts[i].unit == unit {
			return true
		}
	}
	return false
}

// Wants returns how many bytes of the request's body at most the estimate
// needs, 0 if none. length is what the request says of its body's length,
// below 0 if it says nothing.
func (c *Call) Wants(length int64) (n int64) {
	for i := range c.parts {
		p := &c.parts[i]
		asks := p.spec.Request != nil && p.spec.Output.Asks()
		if length != 0 && (asks || length < 0 && p.spec.Input.Bytes > 0) {
			n = max(n, p.read)
		}
	}
	return n
}

// Reserve estimates the call, and appends what is to be charged for it to the
// options of its decision. size is how many bytes the request's body has, as
// far as that is known; body is what was read of it, at least as much as the
// call [Call.Wants] unless it is shorter.
func (c *Call) Reserve(opts []Option, size int64, body []byte) []Option {
	for i := range c.parts {
		p := &c.parts[i]
		asked := usage.Asked{Size: size, Most: -1}
		if p.spec.Request != nil && p.spec.Output.Asks() {
			var a usage.Asker
			a.Begin(p.spec.Request)
			a.Write(body[:min(int64(len(body)), p.read)])
			asked.Most = a.Most()
		}
		p.estimate = p.account.Estimate(asked)
		// What costs nothing is not charged, and so could not be settled.
		p.estimate.Units = max(1, p.estimate.Units)
		opts = append(opts, Cost(p.unit, p.estimate.Units))
	}
	return opts
}

// Charged reports whether v charged anything for the call.
func (c *Call) Charged(v *Verdict) bool {
	return slices.ContainsFunc(c.parts, func(p callPart) bool { return v.Counts(p.unit) })
}

// Answer says that the call's final answer begins, and how it is written: its
// Content-Type and Content-Encoding.
func (c *Call) Answer(contentType, encoding string) {
	for i := range c.parts {
		p := &c.parts[i]
		p.same = slices.IndexFunc(c.parts, func(o callPart) bool { return o.spec.Format == p.spec.Format })
		if p.same == i {
			p.scanner.Begin(p.spec.Format, contentType, encoding, c.decoders)
		}
	}
	c.begun = true
}

// Write shows the call a piece of its answer's body, of any size. It neither
// keeps nor changes b.
func (c *Call) Write(b []byte) {
	for i := range c.parts {
		if p := &c.parts[i]; c.begun && p.same == i {
			p.scanner.Write(b)
		}
	}
}

// Settle ends the call: v is corrected to what the answer said, as far as it
// said it, by [Verdict.Measured]. status is that of the answer, 0 if none
// began; whole says that it did not break off. It must be called once for each
// call whose answer began. The error is the store's.
func (c *Call) Settle(v *Verdict, status int, whole bool) error {
	var errs []error
	for i := range c.parts {
		p := &c.parts[i]
		switch {
		case !c.begun:
			p.counts.Opaque = status != 0
		case p.same == i:
			p.counts = p.scanner.End()
		default:
			p.counts = c.parts[p.same].counts
		}
		units := p.account.Settle(p.estimate, usage.Answer{Status: status, Whole: whole, Counts: p.counts})
		errs = append(errs, v.Measured(p.unit, units))
	}
	return errors.Join(errs...)
}

// Reserved is what a usage reserves for a request by the length of its body
// alone, and if nothing is known of earlier answers: what the body allows, only
// the body can say.
type Reserved struct {
	Usage *Usage
	Units int64
}

// reserved returns the options of a decision with what usages add to them, and
// what that is.
func (e *Engine) reserved(attrs Attributes, opts []Option) ([]Option, []Reserved) {
	c := e.Call(attrs)
	if c == nil {
		return opts, nil
	}
	out := make([]Reserved, len(c.parts))
	length, _ := attrs.AppendAttr(nil, Attribute{Kind: ContentLength})
	size, _ := strconv.ParseInt(string(length), 10, 64) // 0 if it is not known
	opts = c.Reserve(slices.Clone(opts), size, nil)
	for i := range c.parts {
		out[i] = Reserved{c.parts[i].Usage, c.parts[i].estimate.Units}
	}
	return opts, out
}

// Decoder says how answers of that Content-Encoding are unpacked, so that a
// [Usage] can read them; gzip and deflate need nobody to say it. What open
// returns reads from r within its own Read only, in the goroutine that calls it,
// and not after its Close, which comes once for each. It bounds its own memory;
// of what it returns 64 MiB are read.
//
//	policy.Decoder("br", func(r io.Reader) (io.ReadCloser, error) {
//		return io.NopCloser(brotli.NewReader(r)), nil
//	})
func Decoder(encoding string, open func(r io.Reader) (io.ReadCloser, error)) EngineOption {
	return func(o *engineOptions) {
		if o.decoders == nil {
			o.decoders = make(usage.Decoders)
		}
		o.decoders[strings.ToLower(encoding)] = open
	}
}

// UsageTotals say what became of the calls of one [Usage] since the engine
// was made: numbers of calls that have ended, by how, and what they cost. A call
// that was refused is none.
type UsageTotals struct {
	Told   int64 // the answer said what it used
	Untold int64 // it said nothing, or not all: the estimate stood for the rest
	Absurd int64 // it said what can't be: the estimate stood
	Opaque int64 // it is not JSON, or encoded in a way that nobody can read: the estimate stood
	Cut    int64 // it broke off: the estimate stood for what was not told
	Free   int64 // it was an error, and cost nothing
	// Reserved are the units that were charged before the calls. Over are those
	// above these estimates: what callers may have used beyond their limits at
	// most. Back are those below them, which were given back.
	Reserved, Over, Back int64
}

// Settled returns the units that the calls cost in the end.
func (t UsageTotals) Settled() int64 { return t.Reserved + t.Over - t.Back }

// UsageTotals returns what became of the calls, by the policy's usages in
// order.
func (e *Engine) UsageTotals() []UsageTotals {
	out := make([]UsageTotals, len(e.accounts))
	for i, a := range e.accounts {
		out[i] = UsageTotals(a.Totals())
	}
	return out
}

// accountsOf makes the accounts of a policy's usages.
func accountsOf(p *Policy) []*usage.Account {
	var out []*usage.Account
	for i := range p.metered {
		out = append(out, &usage.Account{Spec: p.metered[i].spec})
	}
	return out
}
