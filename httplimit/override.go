package httplimit

import (
	"strconv"
	"sync"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

// others are the quotas of limits that overrides set, made when they are first
// told.
type others struct{ made sync.Map } // of *quota by otherQuota

type otherQuota struct {
	rule  *policy.Rule
	limit spillgate.Limit
}

// quotaOf returns what is told of the limit that o was decided by, nil if it
// is none.
func (p *policed) quotaOf(o *policy.Outcome) *quota {
	q := p.quotas[o.Rule]
	if q == nil || o.Override == nil || o.Override.Deny {
		return q
	}
	id := otherQuota{o.Rule, o.Limit()}
	if made, ok := p.others.made.Load(id); ok {
		return made.(*quota)
	}
	other := quotaOf(o.Rule.Name, o.Rule.Unit, id.limit)
	other.key = q.key
	p.others.made.Store(id, other)
	return other
}

// problemOf returns the type of problem that a refusal is.
func problemOf(o *policy.Outcome) policy.Problem {
	if o.Decision.Reason == spillgate.Blocked {
		return policy.AbnormalUsage
	}
	return policy.QuotaExceeded
}

// appendBlocked appends what has happened to a client that is blocked.
func (f *refusal) appendBlocked(b []byte) []byte {
	b = append(b, "This client is blocked"...)
	if !f.ruleless {
		b = append(append(append(b, " (rule "...), f.Rule...), ')')
	}
	b = append(b, '.')
	if f.RetryAfter == spillgate.Never {
		return append(b, " Waiting does not help."...)
	}
	b = strconv.AppendInt(append(b, " Retry after "...), f.wait, 10)
	return append(b, " s: by then a request like this one fits again. Asking before does not make it longer."...)
}
