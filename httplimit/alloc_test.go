//go:build !race

package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/spillgate/spillgate/httplimit"
)

func TestAllocations(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			h := way.wrap(t)(trivial)
			w, r := &sink{header: http.Header{}}, request(t)
			got := testing.AllocsPerRun(1000, func() {
				h.ServeHTTP(w, r)
				w.clear()
			})
			if got > way.allocs {
				t.Errorf("%v allocations a request; at most %v", got, way.allocs)
			}
		})
	}
}

func TestAllocDialects(t *testing.T) {
	for _, c := range []struct {
		name string
		opts []httplimit.Option
		most float64
	}{
		{"draft", []httplimit.Option{httplimit.Dialects(httplimit.Draft)}, 2},
		{"github", []httplimit.Option{httplimit.Dialects(httplimit.GitHub)}, 5},
		{"draft and openai", []httplimit.Option{httplimit.Dialects(httplimit.Draft, httplimit.OpenAI)}, 6},
		{"partitions", []httplimit.Option{httplimit.PartitionKeys()}, 3},
	} {
		h := httplimit.Policy(engine(t, rule(t, "visitor", "1000000/s burst 1000000", "client.ip")), c.opts...)(trivial)
		w, r := &sink{header: map[string][]string{}}, request(t)
		if got := testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r); w.clear() }); got > c.most {
			t.Errorf("%s: %v allocations a request; at most %v", c.name, got, c.most)
		}
	}
}
