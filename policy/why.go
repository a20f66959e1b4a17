package policy

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
