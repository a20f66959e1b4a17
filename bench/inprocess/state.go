package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"time"
)

// A state is what is measured of the keys' state as a whole: how fast it is
// saved, and whether a flood can reset it.
type state struct {
	snapshot time.Duration // writing all known keys to a file, fsync apart
	write    time.Duration // writing the same bytes
	limited  int           // keys that had nothing left when the flood came
	fresh    int           // keys never seen before that came
	freed    int           // limited keys that were admitted after it
}

// saver is a limiter that can write down what it knows.
type saver interface {
	limiter
	Snapshot(io.Writer) error
}

// runState measures those that can save their state.
func (r *results) runState(all []contestant, keys *streams) error {
	for _, c := range all {
		if !c.stores {
			continue
		}
		var s state
		err := r.save(c, keys, &s)
		if err == nil {
			err = r.flood(c, keys, &s)
		}
		if err != nil {
			return fmt.Errorf("bench: %s: %w", c.name, err)
		}
		r.state[c.name] = s
	}
	return nil
}

// save takes the fastest of a few rounds of either, one after another: the
// disk's cache only ever adds.
func (r *results) save(c contestant, keys *streams, s *state) error {
	l, err := c.open(steady(keys.known.len()))
	if err != nil {
		return err
	}
	defer shut(l)
	from, can := l.(saver)
	if !can {
		return nil
	}
	walk(l, keys.known)
	var whole counted
	if err := from.Snapshot(&whole); err != nil {
		return err
	}
	f, err := os.CreateTemp("", "spillgate-bench-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	write := func(best *time.Duration, what func() error) error {
		if err := f.Truncate(0); err != nil {
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		began := time.Now()
		err := what()
		if took := time.Since(began); *best == 0 || took < *best {
			*best = took
		}
		return err
	}
	for range r.rounds {
		if err := write(&s.snapshot, func() error { return from.Snapshot(f) }); err != nil {
			return err
		}
		if err := write(&s.write, func() error { _, err := f.Write(whole.bytes); return err }); err != nil {
			return err
		}
	}
	return nil
}

// counted keeps what is written.
type counted struct{ bytes []byte }

func (c *counted) Write(p []byte) (int, error) {
	c.bytes = append(c.bytes, p...)
	return len(p), nil
}

// flood limits the first of the known keys, lets ten times as many fresh keys
// come as the table has room for, and asks for the limited ones again.
func (r *results) flood(c contestant, keys *streams, s *state) error {
	if !c.grows { // has no cap that a flood could meet
		return nil
	}
	n := keys.known.len()
	l, err := c.open(setup{every: 365 * 24 * time.Hour, burst: 1, window: 365 * 24 * time.Hour, keys: n, idle: time.Hour, sweep: time.Hour})
	if err != nil {
		return err
	}
	defer shut(l)
	for s.limited = 0; s.limited < n/1000; s.limited++ {
		if k := keys.known.key(s.limited); !l.Allow(k) || l.Allow(k) {
			return fmt.Errorf("key %d is not limited to one request", s.limited)
		}
	}
	var k [keySize]byte
	for s.fresh = 0; s.fresh < 10*n; s.fresh++ {
		copy(k[:], keys.known.key(s.fresh%n))
		binary.LittleEndian.PutUint64(k[:], uint64(s.fresh))
		l.Allow(string(k[:]))
	}
	for i := range s.limited {
		if l.Allow(keys.known.key(i)) {
			s.freed++
		}
	}
	return nil
}

// saving and freeing pick a number of a contestant's state.
func saving(contestant string, pick func(state) float64) measure {
	return func(r *results) (float64, bool) {
		s, ok := r.state[contestant]
		return pick(s), ok
	}
}

func snapshotTime(s state) float64 { return float64(s.snapshot) }
func writeTime(s state) float64    { return float64(s.write) }
func freedKeys(s state) float64    { return float64(s.freed) }

// states tells what was measured of the state as a whole.
func (r *results) states(w io.Writer, all []contestant) {
	for _, c := range all {
		s := r.state[c.name]
		if s.write > 0 {
			fmt.Fprintf(w, "\n%s: a snapshot of %s keys takes %s ms, writing the same bytes %s ms (fsync apart).\n", c.name, count(r.known), ms(s.snapshot), ms(s.write))
		}
		if s.limited > 0 {
			fmt.Fprintf(w, "\n%s: of %s limited keys %d were admitted after %s fresh keys at a cap of %s.\n", c.name, count(s.limited), s.freed, count(s.fresh), count(r.known))
		}
	}
}
