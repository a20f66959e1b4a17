package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
)

// Words for fronts that tell of a refusal in a sentence, as calls are told.

// Says tells a caller whom o is the first to refuse what happened, and when to
// come again: after wait, the longest of all that refuse, [spillgate.Never] if
// no wait helps.
func (o *Outcome) Says(wait time.Duration) string {
	name := o.Rule.Name
	switch reason := o.Decision.Reason; {
	case o.Flat() && reason != spillgate.Blocked:
		return fmt.Sprintf("rule %q does not admit this call; waiting does not help", name)
	case reason == spillgate.NeverFits:
		return fmt.Sprintf("this call costs more than the quota of rule %q ever holds; ask for less at once", name)
	case reason == spillgate.Blocked:
		says := "this caller is blocked"
		if !o.Ruleless() {
			says += fmt.Sprintf(" (rule %q)", name)
		}
		if wait == spillgate.Never {
			return says + "; waiting does not help"
		}
		return says + fmt.Sprintf("; retry after %s", wait)
	case wait == spillgate.Never:
		return fmt.Sprintf("the quota of rule %q is used up; nothing more will be earned", name)
	}
	return fmt.Sprintf("the quota of rule %q is used up; retry after %s", name, wait)
}

// Describe tells the limit of o, unless the rule hides it, and what it says of
// the request that it refuses.
func (o *Outcome) Describe() string {
	limit, fits := o.Limit().String(), fmt.Sprintf(" (%d)", o.Decision.Limit)
	if o.Rule.Hide {
		limit, fits = "the limit", ""
	}
	switch d := &o.Decision; {
	case o.Flat():
		return "denied"
	case d.Reason == spillgate.Blocked:
		return fmt.Sprintf("%s: blocked, for it was refused too often; retry after %s", limit, d.RetryAfter)
	case d.Reason == spillgate.NeverFits:
		return fmt.Sprintf("%s: costs more than ever fits at once%s", limit, fits)
	case d.RetryAfter == spillgate.Never:
		return fmt.Sprintf("%s: used up, and nothing more will be earned", limit)
	default:
		return fmt.Sprintf("%s: used up; retry after %s", limit, d.RetryAfter)
	}
}

// Subject says what tells the callers of r apart, "client.ip + route", and not
// who a caller is; "everybody" if nothing does.
func (r *Rule) Subject() string {
	if len(r.Key) == 0 {
		return "everybody"
	}
	parts := make([]string, len(r.Key))
	for i, p := range r.Key {
		parts[i] = p.String()
	}
	return strings.Join(parts, " + ")
}
