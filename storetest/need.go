package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/spillgate/spillgate"
)

// need asks whether the way is open, takes no more than it says, and shuts it
// for all charges of the call.
func (s *suite) need() {
	blocks := s.space(spillgate.SpaceOptions{AtCap: spillgate.MakeRoom})
	gate := s.charge("1000/s burst 60000", "k", 0, blocks)
	gate.Need = 60000
	other := s.charge("1/s burst 3", "k", 1)
	for i := range 2 {
		out := s.take(0, other, gate)
		if !out[0].Allowed || out[0].Remaining != int64(2-i) || !out[1].Allowed || out[1].Taken != 0 || out[1].Remaining != 60000 {
			s.Fatalf("an open way: %+v", out)
		}
	}
	// A block of 7 s, made only where there is none.
	block := s.charge("1000/s burst 60000", "k", 7000, blocks)
	block.Keep = 53000
	for i, want := range []bool{true, false} {
		if d := s.take(time.Second, block)[0]; d.Allowed != want {
			s.Fatalf("block %d: %+v", i, d)
		}
	}
	for _, tt := range []struct {
		at   time.Duration
		wait time.Duration
	}{{time.Second, 7 * time.Second}, {8*time.Second - 1, 1}} {
		out := s.take(tt.at, other, gate)
		if d := out[1]; d.Allowed || d.Reason != spillgate.OverLimit || d.RetryAfter != tt.wait {
			s.Errorf("a way that is shut at %s: %+v, want a wait of %s", tt.at, d, tt.wait)
		}
		if d := out[0]; d.Taken != 0 || !d.Allowed {
			s.Errorf("a charge beside a way that is shut: %+v", d)
		}
	}
	out := s.take(8*time.Second, other, gate)
	if !out[0].Allowed || out[0].Remaining != 2 || !out[1].Allowed {
		s.Errorf("open again: %+v", out)
	}

	some := s.charge("1/s burst 10", "k", 2)
	some.Need = 9
	if d := s.take(0, some)[0]; !d.Allowed || d.Taken != 2 || d.Remaining != 8 {
		s.Errorf("2 of 9 that are needed: %+v", d)
	}
	if d := s.take(0, some)[0]; d.Allowed || d.RetryAfter != time.Second || d.Remaining != 8 {
		s.Errorf("9 needed of 8: %+v", d)
	}
	for _, limit := range []string{"9/s log", "9 at once"} {
		c := s.charge(limit, "k", 0)
		c.Need = 1
		if err := s.store.Take(context.Background(), start, []spillgate.Charge{c}, make([]spillgate.Decision, 1)); !errors.Is(err, spillgate.ErrCharge) {
			s.Errorf("%s: error %v, want ErrCharge", limit, err)
		}
	}
}
