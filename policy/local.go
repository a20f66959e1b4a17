package policy

import (
	"sync"
	"time"

	"github.com/spillgate/spillgate"
)

// LocalLimit returns the limit by which each of n nodes ([Nodes]) decides for a rule
// with [Local] and the limit l while the store can't answer: a part of the rate, and
// max(1, ⌊b/n⌋) of a burst b, of a window, a log, or slots. ok is false if there is no
// such limit; then the rule is shut.
//
// The state under that limit earns as any does, also while the store answers. In a time
// in which the store fails k times, for D together, each node admits up to k·b′ + r′·D by
// itself, of a burst b′ and a rate r′ of its part, and never more than that part admits in
// the whole time.
func LocalLimit(l spillgate.Limit, n int) (part spillgate.Limit, ok bool) {
	m := share(l, n)
	if m == nil {
		return part, false
	}
	return m.Limit(), true
}

// shares are the limits by which one of some nodes decides alone, made when they are
// first needed: the number may change often, and each limit is there for good.
type shares struct {
	nodes int
	of    sync.Map // the meter of a whole limit to that of its share
}

// by returns the share of m, nil if it can't be divided.
func (s *shares) by(m *spillgate.Meter) *spillgate.Meter {
	if part, ok := s.of.Load(m); ok {
		return part.(*spillgate.Meter)
	}
	part := share(m.Limit(), s.nodes)
	s.of.Store(m, part)
	return part
}

// SetNodes says that n engines share the store from now on; less than 1 counts as 1.
// While the store fails each decides for its n-th part of a limit, also of one that an
// override sets. Each request sees one number or the other. What a key has used stays
// used: it earns at the old share up to its first request that passes under the new one,
// and a larger share grants nothing by itself.
func (e *Engine) SetNodes(n int) {
	if n = max(1, n); n != e.Nodes() {
		e.shares.Store(&shares{nodes: n})
	}
}

// Nodes returns how many engines share the store, as [Nodes] or [Engine.SetNodes] said
// last.
func (e *Engine) Nodes() int { return e.shares.Load().nodes }

// share returns the n-th part of l: the rate exactly where it can be, the
// burst at least 1. It is nil if that can't be carried out.
func share(l spillgate.Limit, n int) *spillgate.Meter {
	if n > 1 {
		switch l.Algorithm {
		case spillgate.Bucket, spillgate.Queue:
			if l.Burst > 0 {
				l.Burst = max(1, l.Burst/int64(n))
			}
			if whole := l; whole.Rate%int64(n) == 0 {
				l.Rate /= int64(n)
			} else if whole.Period *= time.Duration(n); whole.Period/time.Duration(n) == l.Period && whole.Validate() == nil {
				l = whole
			} else {
				l.Rate = max(1, l.Rate/int64(n))
			}
		case spillgate.Unlimited:
		default:
			l.Rate = max(1, l.Rate/int64(n))
		}
	}
	m, err := l.Meter()
	if err != nil {
		return nil
	}
	return m
}
