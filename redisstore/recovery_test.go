package redisstore_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// TestRecovery lets a server be away for long, and wants nothing but probes to
// go out meanwhile, and decisions to come from it again at one of the first five
// probes after its return.
func TestRecovery(t *testing.T) {
	for _, f := range []struct {
		name        string
		spoil, mend func(*redistest.Server, *redistest.Proxy)
	}{
		{"killed", func(s *redistest.Server, p *redistest.Proxy) { s.Kill() }, func(s *redistest.Server, p *redistest.Proxy) { s.Run() }},
		{"frozen", func(s *redistest.Server, p *redistest.Proxy) { s.Pause() }, func(s *redistest.Server, p *redistest.Proxy) { s.Continue() }},
		{"cut off", func(s *redistest.Server, p *redistest.Proxy) { p.Deaf.Store(true) }, func(s *redistest.Server, p *redistest.Proxy) { p.Deaf.Store(false) }},
	} {
		t.Run(f.name, func(t *testing.T) {
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr)
			addr := server.Addr
			if f.name == "cut off" {
				addr = proxy.Addr
			}
			back := make(chan time.Time, 1)
			s, err := redisstore.New(through(t, addr), redisstore.Budget(budget), redisstore.Watch(func(_ string, open bool, _ redisstore.Fault) {
				if !open {
					back <- time.Now()
				}
			}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			c := charge(t, "1000000/h burst 1000000")
			eventually(t, "an answer", func() bool { _, err := take(s, c); return err == nil })
			f.spoil(server, proxy)
			eventually(t, "an open breaker", func() bool { _, _ = take(s, c); return s.Stats().Open == 1 })
			before := s.Stats()
			took := make([]time.Duration, 1000)
			for i := range took {
				began := time.Now()
				if _, err := take(s, c); !errors.Is(err, spillgate.ErrUnavailable) {
					t.Fatal(err)
				}
				took[i] = time.Since(began)
			}
			eventually(t, "forty probes", func() bool { return s.Stats().Probes >= before.Probes+40 })
			if st := s.Stats(); st.Calls != before.Calls || st.Shut != before.Shut+1000 {
				t.Errorf("%d calls, and %d requests decided without", st.Calls-before.Calls, st.Shut-before.Shut)
			}
			f.mend(server, proxy)
			began, probes := time.Now(), s.Stats().Probes
			after := (<-back).Sub(began)
			if n := s.Stats().Probes - probes; n > 5 {
				t.Errorf("back at probe %d after the server's return, want one of the first five", n)
			} else {
				slices.Sort(took)
				t.Logf("while it was away a request took %s in the middle, %s at most; back at probe %d, after %s", took[500], took[999], n, after)
			}
			eventually(t, "an answer again", func() bool { d, err := take(s, c); return err == nil && d.Allowed })
		})
	}
}
