package policy

import "github.com/spillgate/spillgate"

// LocalLimit returns the limit by which each of n nodes ([Nodes]) decides for a rule
// with [Local] and the limit l while the store can't answer: a part of the rate, and
// max(1, ⌊b/n⌋) of a burst b, of a window, a log, or slots. ok is false if there is no
// such limit; then the rule is shut.
func LocalLimit(l spillgate.Limit, n int) (part spillgate.Limit, ok bool) {
	m := share(l, n)
	if m == nil {
		return part, false
	}
	return m.Limit(), true
}
