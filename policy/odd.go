package policy

import (
	"bytes"
	"fmt"

	"github.com/spillgate/spillgate"
)

// An OddError says that a request may be so much at once, by a path of many readings, a
// field with several values, or a value too long to be looked through, that more rules
// speak of it than can apply to one ([spillgate.MaxCharges]). It is the client's fault.
type OddError struct{ Attribute Attribute }

// Error names the attribute, and not its value, which may be a secret.
func (e *OddError) Error() string {
	return fmt.Sprintf("policy: %s may be taken in so many ways that more than %d rules apply", e.Attribute, spillgate.MaxCharges)
}

// full reports whether no more charges can be made for a request that may be several
// at once, and then makes v an error. Too many for a plain one are the policy's fault,
// which the store tells.
func (s *scratch) full(v *Verdict) bool {
	if len(s.charges) < spillgate.MaxCharges {
		return false
	}
	for i := range s.cache.slots {
		a, at := &s.cache.slots[i], &s.cache.reads[i]
		if at.round != s.cache.round {
			continue
		}
		if at.any || at.more > at.to || a.Kind.read() && bytes.IndexByte(s.cache.text[at.from:at.to], readingsEnd) >= 0 {
			v.alone()
			v.err = &OddError{*a}
			return true
		}
	}
	return false
}
