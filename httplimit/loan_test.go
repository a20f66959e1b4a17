package httplimit_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// Verdicts are in memory that is used again. Whoever asks for one in time keeps
// it, and whoever asks too late gets none, rather than that of another request.
func TestVerdictsAreOfTheirOwnRequest(t *testing.T) {
	h := httplimit.Policy(engine(t, rule(t, "page", "1000000/s burst 1000000", "path")))
	const early, late = "early", "late"
	var asking sync.WaitGroup
	over := make(chan struct{})
	handler := h(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, path := r.Context(), r.URL.Path
		switch r.Method {
		case early:
			v := policy.FromContext(ctx)
			asking.Go(func() {
				<-over
				if got := policy.FromContext(ctx); got != v {
					t.Errorf("%s: later the verdict is another", path)
				}
				if o := v.Outcome(0); v.Len() != 1 || o.Rule.Name != "page" || !v.Allowed {
					t.Errorf("%s: %d outcomes, %+v", path, v.Len(), o)
				}
			})
		case late:
			asking.Go(func() {
				<-over
				if v := policy.FromContext(ctx); v != nil {
					t.Errorf("%s: a verdict after the request", path)
				}
			})
		}
	}))
	for range 50 {
		for _, method := range []string{early, late, "GET"} {
			r := request(t)
			r.Method = method
			handler.ServeHTTP(&sink{header: http.Header{}}, r)
		}
	}
	close(over)
	asking.Wait()
}
