package policy

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

// restarted has an engine on a memory be asked three times, and returns what a
// snapshot of that memory is restored to 4 s later, and how to ask.
func restarted(t *testing.T, engine func(*spillgate.Memory) *Engine) (again *spillgate.Memory, ask func(*Engine) Verdict) {
	t.Helper()
	ask = func(e *Engine) Verdict {
		return e.Decide(context.Background(), Attrs{"client.ip": "203.0.113.9"})
	}
	mem := spillgate.NewMemory()
	t.Cleanup(func() { mem.Close() })
	before := engine(mem)
	for range 3 {
		ask(before)
	}
	var file bytes.Buffer
	if err := mem.Snapshot(&file); err != nil {
		t.Fatal(err)
	}
	<-time.After(4 * time.Second)
	again = spillgate.NewMemory()
	t.Cleanup(func() { again.Close() })
	if err := again.Restore(&file); err != nil {
		t.Fatal(err)
	}
	return again, ask
}

// An engine on a memory that was restored finds its callers, rule by rule, by
// name; a rule of another limit settles what was earned at the old one.
func TestEngineAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := func(mem *spillgate.Memory, rules ...Rule) *Engine {
			p, err := Compile(rules)
			if err != nil {
				t.Fatal(err)
			}
			return NewEngine(p, mem)
		}
		again, ask := restarted(t, func(mem *spillgate.Memory) *Engine {
			return engine(mem, testRule(t, "a", "6/min burst 3", "client.ip"), testRule(t, "b", "100/h", "client.ip"))
		})
		after := engine(again, testRule(t, "new", "9/h", "client.ip"), testRule(t, "b", "100/h", "client.ip"), testRule(t, "a", "60/min burst 3", "client.ip"))
		if err := again.Restore(bytes.NewReader(nil)); err == nil {
			t.Error("restored beneath an engine")
		}
		v := ask(after)
		// 0.4 of a unit was earned at 6 a minute; the rest is at one a second.
		if v.Allowed || v.RetryAfter() != 600*time.Millisecond {
			t.Errorf("allowed %t, retry after %s", v.Allowed, v.RetryAfter())
		}
		for name, left := range map[string]int64{"new": 9, "b": 97} {
			if o := v.Of(name); o == nil || o.Decision.Remaining != left {
				t.Errorf("%s: %+v, want %d left", name, o, left)
			}
		}
	})
}

// An engine on leases from a memory goes on with what that one has restored:
// its seed, and limits that are others now.
func TestEngineOnLeasesAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := func(mem *spillgate.Memory, limit string) *Engine {
			leased, err := spillgate.NewLeased(mem, spillgate.LeaseOptions{Nodes: 1, Mixed: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = leased.Close() })
			p, err := Compile([]Rule{testRule(t, "a", limit, "client.ip")})
			if err != nil {
				t.Fatal(err)
			}
			return NewEngine(p, leased)
		}
		again, ask := restarted(t, func(mem *spillgate.Memory) *Engine { return engine(mem, "6/min burst 3") })
		// 0.4 of a unit was earned at 6 a minute; the rest is at one a second.
		if v := ask(engine(again, "60/min burst 3")); v.Allowed || v.RetryAfter() != 600*time.Millisecond {
			t.Errorf("allowed %t, retry after %s", v.Allowed, v.RetryAfter())
		}
	})
}
