package policy

import (
	"fmt"
	"net/url"
)

// A Backup is a spare lane: where requests go that a rule refuses and prefers
// all the same.
type Backup struct {
	// Upstream is where they go, an http or https URL; how, is the front's
	// matter.
	Upstream string
	// Match says which requests are preferred; empty means all.
	Match Match
}

// check reports what is wrong with b.
func (b *Backup) check() error {
	u, err := url.Parse(b.Upstream)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		// Without the text: it may hold a password.
		return fmt.Errorf("upstream: want the URL of a server, such as http://127.0.0.1:9001")
	}
	return nil
}

// Backup returns the spare lane that a refused request may take: that of the
// first rule that refuses it, if every rule that does has one and prefers the
// request. It is nil if there is none, or the request may pass. Nothing is
// charged for such a request.
func (v *Verdict) Backup() (b *Backup) {
	if v == nil || v.Allowed || v.err != nil {
		return nil
	}
	for i := range v.Len() {
		o := v.Outcome(i)
		switch {
		case !o.Refuses():
		case !o.preferred:
			return nil
		case b == nil:
			b = o.Rule.Backup
		}
	}
	return b
}

// prefer notes which of the rules that refuse prefer the request. A reading of
// its path that is not preferred is enough against it.
func (e *Engine) prefer(v *Verdict, s *scratch) {
	for i := range v.Len() {
		o := v.Outcome(i)
		if o.Refuses() && o.Judged() && o.Rule.Backup != nil {
			o.preferred = s.meets(e.policy.rules[o.index].backup, true)
		}
	}
}
