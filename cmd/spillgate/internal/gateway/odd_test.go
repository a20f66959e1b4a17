package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/policy"
)

// A path that is made to be any at all, where more rules speak of paths than can apply,
// is its client's fault: a plain 400, and no warning.
func TestAnOddPathToWhichTooManyRulesApply(t *testing.T) {
	rules := []policy.Rule{rule(t, "address", "2/h burst 2", []string{"client.ip"})}
	for i := range spillgate.MaxCharges {
		rules = append(rules, rule(t, fmt.Sprint("r", i), "1/h burst 1", nil, "path", fmt.Sprintf("/p*%d", i)))
	}
	f := open(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), func(c *gateway.Config) {
		c.Engine = policy.NewEngine(compile(t, rules...), spillgate.NewMemory())
	})
	c := visitor(t, "127.0.0.1")
	for range 3 {
		r := get(t, c, f.url+"/a;b//..%2f%5c..;/x")
		if r.StatusCode != http.StatusBadRequest || !strings.Contains(r.body, "path of this request may be taken in too many ways") {
			t.Errorf("%d %s", r.StatusCode, r.body)
		}
	}
	for _, want := range []int{200, 200, 429} {
		if r := get(t, c, f.url+"/plain"); r.StatusCode != want {
			t.Errorf("%d, want %d: what was refused costs nothing", r.StatusCode, want)
		}
	}
	if text := f.log.String(); strings.Contains(text, "level=WARN") || strings.Contains(text, "level=ERROR") {
		t.Errorf("log: %s", text)
	}
}
