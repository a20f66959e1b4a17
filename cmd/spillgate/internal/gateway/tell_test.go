package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// An upstream hears which requests a rule would refuse that refuses nobody yet.
func TestUpstreamsHearWhatIsBeyondALimitThatIsTried(t *testing.T) {
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, strings.Join(r.Header["Spillgate-Remaining"], "|"))
	})
	search := rule(t, "search", "1/h burst 2", []string{"client.ip"})
	search.Tell, search.Spare = true, 100
	f := serve(t, addr, compile(t, search))
	c := visitor(t, "127.0.0.1")
	for i, want := range []string{`"search";r=1`, `"search";r=0`, `"search";r=0;over`, `"search";r=0;over`} {
		if got := get(t, c, f.url, "Spillgate-Remaining", `"search";r=99;over`); got.StatusCode != 200 || got.body != want {
			t.Errorf("request %d: %d, the upstream heard %s, want %s", i, got.StatusCode, got.body, want)
		}
	}
}
