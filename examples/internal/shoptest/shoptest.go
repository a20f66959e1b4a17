// Package shoptest tests the examples that limit the same small shop, each
// beside another framework.
package shoptest

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

// Run asks a shop for orders, and guesses at its password. Its policy is in
// limits.yaml of the folder of the test.
func Run(t *testing.T, handler func(*policy.Policy) http.Handler) {
	pol, err := policyfile.Load("limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		h := handler(pol)
		expect := func(address, path, password string, status int, body string) {
			t.Helper()
			r := httptest.NewRequest("POST", path, strings.NewReader(url.Values{"password": {password}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.RemoteAddr = address
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != status || !strings.Contains(w.Body.String(), body) || w.Header().Get("RateLimit") == "" {
				t.Errorf("%s: %d %s, RateLimit %q; want %d %s", path, w.Code, w.Body, w.Header().Get("RateLimit"), status, body)
			}
		}
		const alice, bob = "192.0.2.1:1000", "192.0.2.2:1000"
		expect(alice, "/orders/1", "", http.StatusOK, "ordered 1")
		expect(alice, "/orders/2", "", http.StatusOK, "ordered 2")
		expect(alice, "/orders/3", "", http.StatusTooManyRequests, `"violated-policies":["orders"]`)
		expect(bob, "/orders/3", "", http.StatusOK, "ordered 3")
		expect(alice, "/other", "", http.StatusNotFound, "")
		for range 5 { // right ones cost nothing
			expect(alice, "/login", "open sesame", http.StatusOK, "welcome")
		}
		for range 3 {
			expect(alice, "/login", "open barley", http.StatusUnauthorized, "wrong password")
		}
		expect(alice, "/login", "open sesame", http.StatusTooManyRequests, `"violated-policies":["password"]`)
		time.Sleep(10 * time.Second)
		expect(alice, "/login", "open sesame", http.StatusOK, "welcome")
		expect(alice, "/orders/3", "", http.StatusOK, "ordered 3")
	})
}
