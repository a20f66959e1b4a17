package policy

import (
	"context"
	"fmt"
	"net/url"
)

// A Backup is a spare lane: where requests go that a rule refuses and prefers
// all the same.
type Backup struct {
	// Upstream is where they go, an http, https or h2c URL; how, is the front's
	// matter.
	Upstream string
	// Match says which requests are preferred; empty means all.
	Match Match
}

// check reports what is wrong with b.
func (b *Backup) check() error {
	u, err := url.Parse(b.Upstream)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		// Without the text: it may hold a password.
		return fmt.Errorf("upstream: want the URL of a server, such as http://127.0.0.1:9001")
	}
	return nil
}

// UseBackup says that the caller sends a request to its [Verdict.Backup] if it
// is refused and has one. Such a request passes all the same, so the rules that
// did not send it there are charged for it. Without it no verdict has a backup.
func UseBackup() Option { return Option{diverts: true} }

// Backup returns the spare lane that a refused request takes: that of the
// first rule that refuses it, if every rule that does has one and prefers the
// request. It is nil if there is none, the request may pass, or it was decided
// without [UseBackup].
//
// The rules that refuse have charged nothing, and all others are charged as for
// any request that passes: when it is over it is settled as one. If one of them
// refuses, there is no backup and nothing is charged.
func (v *Verdict) Backup() *Backup {
	if v == nil {
		return nil
	}
	return v.backup
}

// divert finds the backup of a request that is refused for good, and charges
// it to the rules that don't refuse. One that does so now, since another request
// came between, has the same say as those before it.
func (e *Engine) divert(ctx context.Context, v *Verdict, s *scratch) {
	for v.diverts && !v.Allowed && v.err == nil {
		b := e.preferred(v, s)
		if b == nil {
			return
		}
		s.drop(func(i int) bool { return v.ofRule(i).Refuses() })
		if len(s.charges) == 0 {
			v.backup = b
			return
		}
		var w Verdict
		w.begin(e)
		w.at = v.at
		if v.Fault == nil {
			e.take(ctx, &w, s)
		} else { // the store is not asked again: it may have charged what it did not answer
			e.takeFaulty(ctx, &w, s, v.Fault)
		}
		if w.err != nil {
			return
		}
		v.Fault = w.Fault
		for i := range w.Len() {
			o := w.Outcome(i)
			*v.ofRule(int(o.index)) = *o
		}
		if w.Allowed {
			v.backup = b
			return
		}
	}
}

// preferred returns the backup of the first rule that refuses, if all that do
// have one and prefer the request. A reading of its path that is not preferred
// is enough against it.
func (e *Engine) preferred(v *Verdict, s *scratch) (first *Backup) {
	for i := range v.Len() {
		o := v.Outcome(i)
		switch {
		case !o.Refuses():
		case !o.Judged() || o.Rule.Backup == nil || !s.meets(e.policy.rules[o.index].backup, true):
			return nil
		case first == nil:
			first = o.Rule.Backup
		}
	}
	return first
}

// ofRule returns what the i-th rule of the policy says, which applied.
func (v *Verdict) ofRule(i int) *Outcome {
	for j := range v.Len() {
		if o := v.Outcome(j); int(o.index) == i {
			return o
		}
	}
	return new(Outcome)
}

// drop takes out the charges of rules that are such.
func (s *scratch) drop(such func(rule int) bool) {
	n, over := 0, s.over.charges
	s.over.charges = over[:0]
	for i := range s.charges {
		if such(s.index[i]) {
			continue
		}
		for _, c := range over {
			if c.charge == i {
				s.over.charges = append(s.over.charges, charged{n, c.by})
			}
		}
		s.index[n], s.charges[n] = s.index[i], s.charges[i]
		n++
	}
	s.index, s.charges, s.decisions = s.index[:n], s.charges[:n], s.decisions[:0]
}
