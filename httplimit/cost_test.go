package httplimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// TestCostsOverHTTP asks with all that a client can send for a cost, and looks
// at what the answer says remains. No value passes for nothing, and none is an
// error of the server.
func TestCostsOverHTTP(t *testing.T) {
	items := rule(t, "items", "1000/h", "client.ip")
	items.Prices = []policy.Price{{From: policy.Attribute{Kind: policy.Header, Name: "x-batch"}, Default: 3, Most: 200}}
	bytes := rule(t, "kib", "100/h", "client.ip")
	bytes.Unit = "kib"
	bytes.Prices = []policy.Price{{From: policy.Attribute{Kind: policy.ContentLength}, Per: 1024, Default: 50}}
	eng := engine(t, items, bytes)
	server := httptest.NewServer(httplimit.Policy(eng)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := policy.FromContext(r.Context())
		for _, name := range []string{"items", "kib"} {
			w.Header().Set(name, strconv.FormatInt(v.Of(name).Decision.Taken, 10))
		}
	})))
	defer server.Close()
	unknown := func(n int) io.Reader { return io.MultiReader(strings.NewReader(strings.Repeat("x", n))) }
	for _, tt := range []struct {
		name       string
		batch      []string
		body       io.Reader
		items, kib string
	}{
		{"nothing", nil, nil, "3", "1"},
		{"a batch", []string{"7"}, nil, "7", "1"},
		{"a body", nil, strings.NewReader(strings.Repeat("x", 2049)), "3", "3"},
		{"a body without a length", nil, unknown(10), "3", "50"},
		{"negative", []string{"-7"}, nil, "200", "1"},
		{"10^30", []string{"1" + strings.Repeat("0", 30)}, nil, "200", "1"},
		{"two headers", []string{"1", "2"}, nil, "200", "1"},
		{"the same twice", []string{"1", "1"}, nil, "1", "1"},
		{"an empty one", []string{""}, nil, "3", "1"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL, tt.body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header["X-Batch"] = tt.batch
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if got := answer.Header; answer.StatusCode != 200 || got.Get("items") != tt.items || got.Get("kib") != tt.kib {
			t.Errorf("%s: status %d, %s items and %s KiB charged; want %s and %s", tt.name, answer.StatusCode, got.Get("items"), got.Get("kib"), tt.items, tt.kib)
		}
	}
}
