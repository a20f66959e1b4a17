package policy

import "time"

// SettleAt settles v at t from now on, for whoever decides with [At]: without it
// the charges are settled at the time at which they were made.
func (v *Verdict) SettleAt(t time.Time) {
	if v != nil {
		v.at = t
	}
}
