package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
)

// held is a library whose calls end when the test says so.
type held struct{ calls chan *heldCall }

type heldCall struct {
	requests int
	end      chan struct{}
}

func (h *held) Lane(context.Context, uint16, string) (string, error) { return "", nil }
func (h *held) Slots() bool                                          { return false }
func (h *held) Punctual() bool                                       { return true }

// Eval takes all that is asked of the one key that the test knows.
func (h *held) Eval(_ context.Context, calls []redisstore.Call) {
	c := &heldCall{1, make(chan struct{})}
	now := time.Now().Unix()
	reply := []any{now, int64(0), "A", nil}
	if len(calls[0].Args) > 1 { // a run: 0, how often
		c.requests = int(calls[0].Args[1][1])
		reply = []any{now, int64(0), strings.Repeat("A", c.requests), "\xff"}
	}
	h.calls <- c
	<-c.end
	calls[0].Reply = reply
}

// TestSecondCall: of two callers neither waits for the other, and of many the second
// call starts when it has as much to carry as the one under way.
func TestSecondCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &held{make(chan *heldCall, 10)}
		s, err := redisstore.Open(h, redisstore.Budget(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c := charge(t, "1000/s burst 1000")
		ask := func(n int) {
			for range n {
				go func() {
					out := make([]spillgate.Decision, 1)
					if err := s.Take(context.Background(), time.Time{}, []spillgate.Charge{c}, out); err != nil || !out[0].Allowed {
						t.Error(out, err)
					}
				}()
			}
			synctest.Wait()
		}
		next := func(requests int) *heldCall {
			t.Helper()
			select {
			case got := <-h.calls:
				if got.requests != requests {
					t.Fatalf("a call of %d requests, want %d", got.requests, requests)
				}
				return got
			default:
				t.Fatalf("no call, want one of %d requests", requests)
				return nil
			}
		}
		end := func(c *heldCall) { close(c.end); synctest.Wait() }
		none := func() {
			t.Helper()
			if len(h.calls) > 0 {
				t.Fatalf("a call of %d requests, want none", (<-h.calls).requests)
			}
		}
		ask(1)
		a := next(1)
		ask(1)
		b := next(1)
		ask(8)
		none() // there are two under way
		end(a)
		a = next(8)
		ask(3)
		end(b)
		none() // 3 are fewer than 8
		ask(5)
		b = next(8)
		ask(2)
		end(a)
		none()
		end(b)
		end(next(2)) // nothing else is under way
		none()
	})
}
