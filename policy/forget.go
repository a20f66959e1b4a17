package policy

import (
	"fmt"
	"time"

	"github.com/spillgate/spillgate"
)

// fewKeys is how many callers somebody may well be by himself: whoever has an
// IPv6 /48, as many subscribers do, has so many /64.
const fewKeys = 1 << 16

// whole returns how long l takes at most to be whole again after it was used up,
// 0 if it never is: then only a ttl makes it so.
func whole(l spillgate.Limit) time.Duration {
	switch {
	case l.Calendar == spillgate.Month:
		return 31 * 24 * time.Hour
	case l.Algorithm == spillgate.Concurrency:
		return l.Period // a slot that nobody gives back
	}
	return l.Window()
}

// soon reports whether r forgets a caller by its TTL before its limit is whole
// again.
func (r *Rule) soon() bool { return r.TTL > 0 && r.TTL < whole(r.Limit) }

// crowded reports whether r forgets a caller for a newcomer, where few make the
// table full.
func (r *Rule) crowded() bool {
	return r.AtCap == spillgate.MakeRoom && r.MaxKeys > 0 && r.MaxKeys < fewKeys
}

// forgets warns of rules that forget those whom they still limit.
func (w *warner) forgets() {
	r := w.r
	if !r.refuses() || r.Exempt {
		return
	}
	if r.soon() {
		w.warn("forgets", "ttl", fmt.Sprintf("remove it, or write %s or more", period(whole(r.Limit))),
			"a caller is forgotten %s after its last charge, and its limit is whole again after %s: whoever pauses so long may use all %d anew, so this is no %s",
			period(r.TTL), period(whole(r.Limit)), r.Limit.Cap(), r.Limit)
	}
	if r.crowded() {
		w.warn("forgets", "max_keys", fmt.Sprintf("write at_cap: overflow, or a max_keys of %d or more", fewKeys),
			"%d callers are told apart, and for each newcomer the one nearest to full is forgotten: whoever comes as %d in turn is never limited", r.MaxKeys, r.MaxKeys+1)
	}
}

// forgetful says why r is no companion: it forgets those whom it still limits; ""
// if it doesn't.
func (r *Rule) forgetful() string {
	switch {
	case r.soon():
		return fmt.Sprintf("it forgets a caller after %s (ttl), before its limit is whole again after %s", period(r.TTL), period(whole(r.Limit)))
	case r.crowded():
		return fmt.Sprintf("it tells %d callers apart and forgets one for each newcomer (max_keys, at_cap: make_room)", r.MaxKeys)
	}
	return ""
}
