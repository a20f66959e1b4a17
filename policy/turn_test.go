package policy

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Whom a full line for slots turns away is told when all before it were served,
// as the store says, and not when the first in line asks again.
func TestAFullLineForSlotsTellsWhenTheyExpire(t *testing.T) {
	for name, givesBack := range map[string]bool{"given back": true, "kept for ever": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, delayed(t, "1 at once for 20s", 20*time.Second, 1, "user"))
				_, a := c.come("a", "x")
				_, b := c.come("b", "x")
				_, v := c.come("c", "x")
				wait := v.RetryAfter()
				if v.Allowed || wait != 40*time.Second || v.Of("r").Decision.ResetAfter < wait {
					t.Errorf("c is told %s, reset %s", wait, v.Of("r").Decision.ResetAfter)
				}
				entered := "20s"
				if givesBack {
					after(6 * time.Second)
					a.Done()
					after(6 * time.Second)
					synctest.Wait() // b is in
					b.Done()
					entered = "6s"
				}
				after(time.Until(c.start.Add(wait)))
				c.come("d", "x")
				c.want("a passes at 0s", "b passes at "+entered, "c refused for 40s at 0s", "d passes at 40s")
			})
		})
	}
}

// As many slots as there are expire at once, and nobody waits beyond a delay.
func TestLongLinesForSlots(t *testing.T) {
	for most, want := range map[time.Duration]time.Duration{time.Minute: 20 * time.Second, time.Second: 11 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, delayed(t, "2 at once for 10s", most, 3, "user"))
			c.come("a", "x")
			after(500 * time.Millisecond)
			for _, name := range []string{"b", "c", "d", "e"} {
				c.come(name, "x")
			}
			if _, v := c.come("f", "x"); v.Allowed || v.RetryAfter() != want {
				t.Errorf("most %s: told %s, want %s", most, v.RetryAfter(), want)
			}
			c.wg.Wait()
		})
	}
}

// Who was held in vain is told to come behind those who still stand there.
func TestWhoWasHeldInVainComesBehindTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, delayed(t, "1 at once for 1h", time.Minute, 0, "user"))
		c.come("a", "x")
		c.come("b", "x")
		after(time.Second)
		c.come("c", "x")
		c.want("a passes at 0s", "b refused for 1h1m0s at 1m0s", "c refused for 58m59s at 1m1s")
	})
	synctest.Test(t, func(t *testing.T) { // what the line waits for was spent already
		c := newCrowd(t, delayed(t, "1/10s burst 1", 19*time.Second, 0, "user"))
		_, a := c.come("a", "x")
		c.come("b", "x")
		after(5 * time.Second)
		c.come("c", "x")
		if err := a.Spent(Requests, 3); err != nil {
			t.Fatal(err)
		}
		c.want("a passes at 0s", "b refused for 30s at 10s", "c refused for 20s at 10s")
	})
}

// What never fits is told so, also where there is a line.
func TestWhatNeverFitsStandsInNoLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, delayed(t, "1/s burst 2", time.Minute, 1, "user"))
		c.come("a", "x", Cost(Requests, 2))
		c.come("b", "x")
		c.come("c", "x", Cost(Requests, 3))
		c.want("a passes at 0s", "b passes at 1s", "c refused for 2562047h47m16.854775807s at 0s")
	})
}

// All that fit when a window ends are held until then, as many as fit, and who does
// not is told of the next window, also where windows are those of the calendar, and in
// a log when the first of those before it leave it.
func TestALineForAWindowIsServedByTheWindow(t *testing.T) {
	for limit, want := range map[string]time.Duration{"10/min fixed": time.Minute, "10/calendar minute": time.Minute, "10/min log": time.Minute} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				after(5 * time.Second) // a window has begun before
				c := newCrowd(t, delayed(t, limit, 56*time.Second, 12, "user"))
				c.come("a", "x", Cost(Requests, 10))
				lasts := want
				if limit != "10/min log" {
					lasts -= 5 * time.Second
				}
				after(lasts - 5*time.Second)
				for range 10 {
					c.come("b", "x")
				}
				_, v := c.come("c", "x", Cost(Requests, 2))
				if v.Allowed || v.RetryAfter() != 5*time.Second+want {
					t.Errorf("c is told %s", v.RetryAfter())
				}
				after(v.RetryAfter())
				c.come("d", "x", Cost(Requests, 2))
				log := []string{"a passes at 0s", fmt.Sprintf("c refused for %s at %s", 5*time.Second+want, lasts-5*time.Second), fmt.Sprintf("d passes at %s", lasts+want)}
				for range 10 {
					log = append(log, fmt.Sprintf("b passes at %s", lasts))
				}
				c.want(log...)
			})
		})
	}
}
