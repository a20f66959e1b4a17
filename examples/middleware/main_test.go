package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
)

func TestEachUserHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		h := handler()
		ask := func(session, address string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = address
			if session != "" {
				r.AddCookie(&http.Cookie{Name: "session", Value: session})
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		// Alice uses up hers, from one address after the other.
		for i := range 20 {
			address := []string{"203.0.113.9:1000", "[2001:db8::7]:1000"}[i%2]
			if w := ask("s3cr3t", address); w.Code != http.StatusOK || w.Body.String() != "hello alice\n" {
				t.Fatalf("request %d: %d %s", i, w.Code, w.Body)
			}
		}
		if w := ask("s3cr3t", "192.0.2.1:1000"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
			t.Errorf("beyond her limit: %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
		}
		for who, session := range map[string]string{"bob": "h1dd3n", "nobody": "", "a made-up session": "alice"} {
			if w := ask(session, "203.0.113.9:1000"); w.Code != http.StatusOK {
				t.Errorf("%s, from her address: %d", who, w.Code)
			}
		}
	})
}
