package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/policyfile"
)

// TestLimits plays the tests that stand in the file itself.
func TestLimits(t *testing.T) {
	f, err := policyfile.LoadFile("limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.TestAll(); err != nil {
		t.Error(err)
	}
}

func TestOnlyWrongPasswordsCount(t *testing.T) {
	pol, err := policyfile.Load("limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		h := handler(pol)
		expect := func(method, password string, status int, body string) {
			t.Helper()
			r := httptest.NewRequest(method, "/login", strings.NewReader(url.Values{"password": {password}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != status || !strings.Contains(w.Body.String(), body) {
				t.Errorf("%s %q: %d %s; want %d %s", method, password, w.Code, w.Body, status, body)
			}
		}
		for range 5 {
			expect("POST", "open sesame", http.StatusOK, "welcome")
		}
		expect("GET", "", http.StatusOK, "tries left: 3")
		for _, left := range []string{"2", "1", "0"} {
			expect("POST", "open barley", http.StatusUnauthorized, "tries left: "+left)
		}
		expect("GET", "", http.StatusOK, "tries left: 0")
		expect("POST", "open sesame", http.StatusTooManyRequests, `"violated-policies":["password"]`)
		expect("PUT", "open sesame", http.StatusMethodNotAllowed, "") // no guess passes uncounted
		time.Sleep(10 * time.Second)
		expect("GET", "", http.StatusOK, "tries left: 1")
		expect("POST", "open sesame", http.StatusOK, "welcome")
	})
}
