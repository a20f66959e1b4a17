package grpclimit_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/grpclimit"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A rule that says delay holds a call in line for its key, and refuses those at
// once that would be held for too long.
func TestCallsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, &service{}, limited(engineOf(t, policy.Rule{Name: "a", Limit: limit(t, "1/s burst 1"), Delay: policy.Delay{Most: 2 * time.Second}})))
		start, ends := time.Now(), make(chan string, 6)
		for i := range 5 {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			if i == 1 {
				time.AfterFunc(500*time.Millisecond, leave)
			}
			go func() {
				got := call(ctx, c)
				retry, _ := details(got)
				ends <- fmt.Sprint(i, " ", got.Code(), " ", retry.GetRetryDelay().AsDuration(), " at ", time.Since(start))
			}()
			synctest.Wait()
		}
		for _, want := range []string{"0 OK 0s at 0s", "3 ResourceExhausted 3s at 0s", "4 ResourceExhausted 3s at 0s", "1 Canceled 0s at 500ms", "2 OK 0s at 1s"} {
			if got := <-ends; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		// Nobody is held in vain until a deadline, and nothing is paid.
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		got := call(ctx, c)
		if retry, _ := details(got); got.Code() != codes.ResourceExhausted || retry.GetRetryDelay().AsDuration() != time.Second || time.Since(start) != time.Second {
			t.Errorf("%v after %s", got, time.Since(start))
		}
		synctest.Wait()
		if got := call(t.Context(), c); got.Code() != codes.OK || time.Since(start) != 2*time.Second {
			t.Errorf("%v after %s", got, time.Since(start))
		}
	})
}

// So it is with the messages of a stream, also without ShapedMessages.
func TestMessagesAreHeldByTheirRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		messages := policy.Rule{Name: "messages", Unit: "messages", Limit: limit(t, "1/s burst 2"), Delay: policy.Delay{Most: time.Second}}
		c := serve(t, &service{}, limited(engineOf(t, messages), grpclimit.Messages("messages")))
		start := time.Now()
		if n, end := echo(t.Context(), t, c, 5); n != 5 || end.Code() != codes.OK || time.Since(start) != 3*time.Second {
			t.Errorf("%d messages in %s, then %v", n, time.Since(start), end)
		}
	})
}

// At a stop those who are held are told to come again, calls and messages, by a
// delay or by a queue; nothing is charged.
func TestHeldCallsAreToldOfAStop(t *testing.T) {
	for name, r := range map[string]policy.Rule{
		"delay": {Name: "a", Limit: limit(t, "1/10s burst 1"), Delay: policy.Delay{Most: time.Minute}},
		"queue": {Name: "a", Limit: limit(t, "1/10s queue 5")},
	} {
		synctest.Test(t, func(t *testing.T) {
			messages := r
			messages.Name, messages.Unit = "messages", "messages"
			eng := engineOf(t, r, messages)
			c := serve(t, &service{}, limited(eng, grpclimit.Messages("messages")))
			_ = call(t.Context(), c)
			start, ends := time.Now(), make(chan *status.Status, 2)
			go func() { ends <- call(t.Context(), c) }()
			go func() {
				<-time.After(time.Millisecond)
				_, end := echo(t.Context(), t, c, 2)
				ends <- end
			}()
			<-time.After(time.Second)
			eng.Close()
			for range 2 {
				got := <-ends
				if retry, quota := details(got); got.Code() != codes.Unavailable || retry.GetRetryDelay().AsDuration() != time.Second || quota != nil || time.Since(start) != time.Second {
					t.Errorf("%s: %v after %s", name, got, time.Since(start))
				}
			}
			<-time.After(9 * time.Second)
			if got := call(t.Context(), c); got.Code() != codes.OK {
				t.Errorf("%s: afterwards %v", name, got)
			}
		})
	}
}

// A queue that would hold a call beyond its deadline holds it not at all.
func TestQueueAndDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, &service{}, limited(engineOf(t, policy.Rule{Name: "a", Limit: limit(t, "1/10s queue 5")})))
		_ = call(t.Context(), c)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		if got := call(ctx, c); got.Code() != codes.DeadlineExceeded || time.Since(start) != 0 {
			t.Errorf("%v after %s", got, time.Since(start))
		}
		if got := call(t.Context(), c); got.Code() != codes.OK || time.Since(start) != 10*time.Second {
			t.Errorf("%v after %s", got, time.Since(start))
		}
	})
}
