package policy

// Measured is [Verdict.Spent] in the mouth of a front, which found out by
// itself how much was used. It does nothing for rules whose charge the program
// has settled, by Spent or [Verdict.GiveBack]: the program knows better. The
// error is the store's.
func (v *Verdict) Measured(unit string, actual int64) error {
	return v.settle(func(o *Outcome) bool { return !o.own && o.Rule.unit() == unit }, actual, false)
}

// Counts reports whether a rule of that unit charged the request.
func (v *Verdict) Counts(unit string) bool {
	for i := range v.Len() {
		if o := v.Outcome(i); o.Judged() && !o.Peeked && o.Rule.unit() == unit {
			return true
		}
	}
	return false
}

// own marks the outcomes that which chooses as settled by the program.
func (v *Verdict) own(which func(*Outcome) bool) func(*Outcome) bool {
	for i := range v.Len() {
		if o := v.Outcome(i); which(o) {
			o.own = true
		}
	}
	return which
}
