package policy

import (
	"log/slog"

	"github.com/spillgate/spillgate"
)

// Why says in a few words why o refuses, for logs: "denied by rule" for a rule
// that denies, "key incomplete" where a part of the key is missing and the rule
// refuses such requests, else the decision's reason, as "over limit" or
// "blocked". It is "" if o does not refuse.
func (o *Outcome) Why() string {
	switch {
	case !o.Refuses():
		return ""
	case o.Override != nil || !o.Flat():
		return o.Decision.Reason.String()
	case o.Rule.Deny:
		return "denied by rule"
	}
	return "key incomplete"
}

// Ruleless reports whether o is that of an override that blocks and names no
// rule. Its Rule is none of the policy's then; it is named overrides, for lists
// and logs, and clients need not hear of it.
func (o *Outcome) Ruleless() bool { return o.Rule.Name == everyRule }

// AppendLog appends to the attributes of a log line what a refusal's has beside the rule
// and its key: that the key is blocked, what the request was to cost where that is more
// than one unit or never fits, and the override with its list, where there is one.
func (o *Outcome) AppendLog(attrs []slog.Attr) []slog.Attr {
	if n := o.Cost(); n > 1 || n == 1 && o.Decision.Reason == spillgate.NeverFits {
		attrs = append(attrs, slog.Int64("cost", n))
	}
	if o.Decision.Reason == spillgate.Blocked {
		attrs = append(attrs, slog.Bool("blocked", true))
	}
	if by := o.Override; by != nil {
		attrs = append(attrs, slog.String("override", by.Source), slog.String("reason", by.Reason), slog.String("owner", by.Owner))
		if o.Line() > 0 {
			attrs = append(attrs, slog.String("list", o.Listed()))
		}
	}
	return attrs
}
