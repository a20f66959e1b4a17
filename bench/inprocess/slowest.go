package main

import (
	"fmt"
	"runtime"
	"time"
)

// A slow is the slowest single decision of one goroutine in two situations.
type slow struct {
	growing  time.Duration // while all known keys come for the first time
	expiring time.Duration // while they, idle, are expired
}

// runSlowest looks for slow decisions, all contestants round by round.
func (r *results) runSlowest(all []contestant, keys *streams) error {
	for range r.restless {
		for _, c := range all {
			if !c.stores && c.name != nullName {
				continue
			}
			s, err := slowest(c, keys)
			if err != nil {
				return err
			}
			r.slowest[c.name] = append(r.slowest[c.name], s)
		}
	}
	return nil
}

func slowest(c contestant, keys *streams) (s slow, err error) {
	runtime.GC()
	l, err := c.open(fleeting(keys.known.len()))
	if err != nil {
		return s, fmt.Errorf("bench: open %s: %w", c.name, err)
	}
	defer shut(l)
	for i := range keys.known.len() {
		s.growing = max(s.growing, timed(l, keys.known.key(i)))
	}
	// One key in 16 is new: a table without a sweeper cleans up only for
	// those who ask for room. All known keys are idle and swept within two
	// moments of the setup.
	fresh := keys.fresh[0]
	began := time.Now()
	for i := 0; time.Since(began) < 1250*time.Millisecond; i++ {
		k := keys.known.key(i % 1000)
		if i%16 == 0 {
			k = fresh.key(i / 16 % fresh.len())
		}
		s.expiring = max(s.expiring, timed(l, k))
	}
	return s, nil
}

func timed(l limiter, key string) time.Duration {
	began := time.Now()
	l.Allow(key)
	return time.Since(began)
}
