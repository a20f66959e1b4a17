package httplimit_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// At a stop those who are held are told to come again, at once, and nothing is
// charged.
func TestHeldRequestsAreToldOfAStop(t *testing.T) {
	delay := rule(t, "a", "1/10s burst 1")
	delay.Delay = policy.Delay{Most: time.Minute}
	for name, r := range map[string]policy.Rule{"delay": delay, "queue": rule(t, "a", "1/10s queue 5")} {
		for _, opts := range [][]httplimit.Option{nil, {httplimit.NoVerdict()}} {
			synctest.Test(t, func(t *testing.T) {
				eng := engine(t, r)
				h := httplimit.Policy(eng, opts...)(trivial)
				get(h)
				answers := make(chan *http.Response, 3)
				for range 3 {
					go func() { answers <- get(h) }()
				}
				begun := time.Now()
				<-time.After(time.Second)
				eng.Close()
				for range 3 {
					answer := <-answers
					if p := problemOf(t, answer); answer.StatusCode != 503 || answer.Header.Get("Retry-After") != "1" || p.Type != reducedCapacity || len(p.Violated) > 0 {
						t.Errorf("%s: %s, %+v", name, answer.Status, p)
					}
				}
				if took := time.Since(begun); took != time.Second {
					t.Errorf("%s: told after %s", name, took)
				}
				<-time.After(9 * time.Second) // all that was charged is back but the first
				if answer := get(h); answer.StatusCode != 200 {
					t.Errorf("%s: afterwards %s", name, answer.Status)
				}
			})
		}
	}
}

// So they are by a limit without a policy, when that is closed.
func TestHeldRequestsAreToldThatTheLimiterIsClosed(t *testing.T) {
	lim := spillgate.Must("1/10s queue 5") // outside of the bubble, as a program's own
	synctest.Test(t, func(t *testing.T) {
		h := httplimit.New(lim)(trivial)
		get(h)
		answers := make(chan *http.Response, 3)
		for range 3 {
			go func() { answers <- get(h) }()
		}
		begun := time.Now()
		<-time.After(time.Second)
		if err := lim.Close(); err != nil {
			t.Error(err)
		}
		for range 3 {
			answer := <-answers
			if p := problemOf(t, answer); answer.StatusCode != 503 || answer.Header.Get("Retry-After") != "1" || p.Type != reducedCapacity || len(p.Violated) > 0 {
				t.Errorf("%s, %+v", answer.Status, p)
			}
		}
		if took := time.Since(begun); took != time.Second {
			t.Errorf("told after %s", took)
		}
	})
}

// Who can't be served in the time that its context has is told so at once.
func TestHoldsEndBeforeTheDeadline(t *testing.T) {
	delay := rule(t, "a", "1/10s burst 1")
	delay.Delay = policy.Delay{Most: time.Minute}
	for status, r := range map[int]policy.Rule{429: delay, 503: rule(t, "a", "1/10s queue 5")} {
		holds(t, status, func() http.Handler { return httplimit.Policy(engine(t, r))(trivial) })
	}
	holds(t, 503, func() http.Handler { return httplimit.New(spillgate.Must("1/10s queue 5"))(trivial) })
}

func holds(t *testing.T, status int, limited func() http.Handler) {
	synctest.Test(t, func(t *testing.T) {
		h := limited()
		begun := time.Now()
		within := func(d time.Duration) func(*http.Request) {
			return func(r *http.Request) {
				ctx, cancel := context.WithTimeout(r.Context(), d)
				t.Cleanup(cancel)
				*r = *r.WithContext(ctx)
			}
		}
		get(h)
		if answer := get(h, within(9*time.Second)); answer.StatusCode != status || time.Since(begun) != 0 {
			t.Errorf("%s after %s, want %d", answer.Status, time.Since(begun), status)
		}
		if answer := get(h, within(11*time.Second)); answer.StatusCode != 200 || time.Since(begun) != 10*time.Second {
			t.Errorf("%s after %s, want 200 after 10s", answer.Status, time.Since(begun))
		}
	})
}
