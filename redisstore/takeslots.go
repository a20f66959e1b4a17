package redisstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/spillgate/spillgate"
)

var background = context.Background()

// takeApart carries o out whose keys are in several slots of a cluster, where no script
// sees them all, or in one that is on its way to another server, where each key is by
// itself. Each place is asked first whether it would pass, so that a request which is
// refused takes nothing anywhere; then all are taken. Where somebody was faster in
// between, what was taken is given back.
func (s *Store) takeApart(w *wait, o *op, place func(*part) string) error {
	subs := o.split(place)
	for _, dry := range [2]bool{true, false} {
		for _, sub := range subs {
			sub.dry = dry
		}
		errs := s.each(w, subs, dry)
		failed := slices.IndexFunc(errs, func(err error) bool { return err != nil })
		passes := failed < 0
		for i, sub := range subs {
			passes = passes && (errs[i] != nil || sub.passes)
		}
		if passes && dry {
			continue
		}
		if !passes {
			at := time.Time{}
			if o.given {
				at = time.Unix(0, int64(o.now))
			}
			s.unmake(w, at, subs, errs, !dry)
		}
		if failed >= 0 {
			return partly(errs, failed, dry)
		}
	}
	o.passes = true // nobody remembers it: each slot knows its part alone
	for _, sub := range subs {
		for i := range sub.charges {
			o.out[sub.index[i]] = sub.out[i]
		}
	}
	return nil
}

// partly returns the error of a request that failed in one place, and says so if it was
// charged in others.
func partly(errs []error, failed int, dry bool) error {
	charged := 0
	for _, err := range errs {
		if err == nil {
			charged++
		}
	}
	if dry || charged == 0 {
		return errs[failed]
	}
	return fmt.Errorf("redisstore: charged in %d of %d slots, which is given back, and in one not: %w", charged, len(errs), errs[failed])
}

// Where a part is, for those that are taken apart.
func bySlot(p *part) string {
	slot := slotOf(p.key)
	return string([]byte{byte(slot >> 8), byte(slot)})
}

func byKey(p *part) string { return p.key }

// split takes o apart by where its parts are.
func (o *op) split(place func(*part) string) []*op {
	type slice struct {
		charges []spillgate.Charge
		index   []int
		place   string
		slot    uint16
	}
	var all []slice
	for i := range o.charges {
		p := &o.parts[o.of[i]]
		where, slot := "", uint16(slots) // of those that nobody is asked about
		if p.kind != kindNone {
			where, slot = place(p), slotOf(p.key)
		}
		at := slices.IndexFunc(all, func(s slice) bool { return s.place == where })
		if at < 0 {
			at = len(all)
			all = append(all, slice{place: where, slot: slot})
		}
		all[at].charges = append(all[at].charges, o.charges[i])
		all[at].index = append(all[at].index, i)
	}
	subs := make([]*op, len(all))
	for i, part := range all {
		name := func(sp *spillgate.Space, k spillgate.Key, of spillgate.Algorithm) string {
			for j := range o.parts {
				if p := &o.parts[j]; p.sp == sp && p.id == k && p.m.Limit().Algorithm == of {
					return p.key
				}
			}
			return ""
		}
		r, _ := newRequest(part.charges, name) // it could be made with more
		sub := &op{request: r, given: o.given, slot: part.slot, index: part.index}
		sub.now = o.now
		subs[i] = sub
	}
	return subs
}

// each carries all out at once, in the time that is left of w.
func (s *Store) each(of *wait, subs []*op, first bool) []error {
	errs := make([]error, len(subs))
	var wg sync.WaitGroup
	for i, sub := range subs {
		sub.replace = nil
		if sub.idle() {
			sub.judge()
			continue
		}
		wg.Go(func() {
			w := s.waitUntil(of.ctx, of.deadline)
			defer w.stop()
			w.whole = first
			errs[i] = s.take(w, sub)
		})
	}
	wg.Wait()
	return errs
}

// unmake makes the decisions of all those of a request that took nothing, and
// gives back what was taken, at a time of the caller's if that gave one. What is not
// given back in the time that is left of w still is, while nobody waits for it.
func (s *Store) unmake(w *wait, at time.Time, subs []*op, errs []error, taken bool) {
	var back []spillgate.Correction
	for i, sub := range subs {
		if errs[i] != nil || !sub.passes {
			continue
		}
		if taken {
			for j := range sub.parts {
				p := &sub.parts[j]
				sum := int64(0) // of which the first charge may have no share
				for k := range sub.charges {
					if sub.of[k] == j {
						sum += sub.out[k].Taken
					}
				}
				if sum == 0 || p.kind == kindNone {
					continue
				}
				d := &sub.out[p.first] // all its charges share it, but for what they took
				back = append(back, spillgate.Correction{
					Space: p.sp, Key: p.id, Meter: p.m, Delta: -sum, At: d.At, Slot: d.Slot, Until: until(d),
				})
			}
		}
		sub.passes = false
		sub.withdraw()
		sub.share(false)
	}
	if len(back) > 0 {
		s.stats.overDenied.Add(1)
		done := make(chan struct{})
		if !s.runs(func() {
			defer close(done)
			_ = s.Settle(background, at, back) // else it is earned back in time
		}) {
			return
		}
		select {
		case <-done:
		case <-w.over():
		case <-w.ctx.Done():
		}
	}
}

// until returns when the charge of d alone would have been earned back.
func until(d *spillgate.Decision) spillgate.Instant {
	if at := d.At + spillgate.Instant(d.ResetAfter); at >= d.At {
		return at
	}
	return math.MaxInt64
}
