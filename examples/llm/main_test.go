package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

func TestAsk(t *testing.T) {
	pol, err := policyfile.Load("limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, prompt := t.Context(), strings.Repeat("tell me a story ", 125) // 2,000 bytes
		eng := policy.NewEngine(pol, spillgate.NewMemory())
		left := func(rule string) int64 { // asks for nothing, as alice
			v := eng.Decide(ctx, policy.Attrs{"user": "alice"}, policy.Cost("tokens", 0), policy.Cost(policy.Requests, 0))
			return v.Of(rule).Decision.Remaining
		}
		provider := func(used int64, err error) model {
			return func(context.Context, string, int64) (string, int64, error) {
				if tokens, calls := left("tokens"), left("calls"); tokens > 7000 || calls != 1 {
					t.Errorf("during a call %d tokens and %d calls are left", tokens, calls)
				}
				return "once upon a time", used, err
			}
		}
		if reply, err := ask(ctx, eng, provider(800, nil), "alice", prompt); reply != "once upon a time" || err != nil {
			t.Fatal(reply, err)
		}
		if tokens, calls := left("tokens"), left("calls"); tokens != 9200 || calls != 2 {
			t.Errorf("800 of 10,000 were used, and %d are left; %d calls", tokens, calls)
		}

		// A call that fails keeps its estimate, and no slot.
		broken := errors.New("connection lost")
		if _, err := ask(ctx, eng, provider(0, broken), "alice", prompt); !errors.Is(err, broken) {
			t.Error(err)
		}
		if tokens, calls := left("tokens"), left("calls"); tokens != 6200 || calls != 2 {
			t.Errorf("after a call that failed: %d tokens and %d calls are left", tokens, calls)
		}

		// More than the estimate is not refused, but the next call waits for it.
		if _, err := ask(ctx, eng, provider(6200, nil), "alice", prompt); err != nil {
			t.Error(err)
		}
		_, err := ask(ctx, eng, provider(0, nil), "alice", prompt)
		var denied *policy.DeniedError
		if !errors.As(err, &denied) || denied.Rule != "tokens" || denied.RetryAfter != 18*time.Second {
			t.Errorf("with nothing left: %v", err)
		}
	})
}
