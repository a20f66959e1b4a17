package demo_test

import (
	"context"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/demo"
)

func TestAnswers(t *testing.T) {
	h := demo.Handler()
	form := "application/x-www-form-urlencoded"
	for _, c := range []struct {
		method, path, body, told string
		status                   int
		says                     string
	}{
		{"GET", "/", "", "", 200, "you asked for example.com"},
		{"GET", "/elsewhere", "", "", 404, ""},
		{"POST", "/report", "", "", 200, "report"},
		{"GET", "/report", "", "", 405, ""},
		{"GET", "/login", "", `"login";r=3`, 200, `"login";r=3`},
		{"GET", "/login", "", "", 200, "nobody counts"},
		{"POST", "/login", "password=guess", `"login";r=2`, 401, `"login";r=2`},
		{"POST", "/login", "password=" + demo.Password, "", 200, "welcome"},
	} {
		r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", form)
		if c.told != "" {
			r.Header.Set("Spillgate-Remaining", c.told)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s: %d %q, want %d with %q", c.method, c.path, w.Code, w.Body, c.status, c.says)
		}
	}
}

func TestStreamTakesTenSecondsUnlessTheClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w := httptest.NewRecorder()
		demo.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/stream", nil).WithContext(t.Context()))
		body, err := io.ReadAll(w.Body)
		if err != nil || strings.Count(string(body), "data: ") != 10 || w.Header().Get("Content-Type") != "text/event-stream" {
			t.Errorf("%q, %v", body, err)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("it took %s", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, leave := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer leave()
		demo.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/stream", nil).WithContext(ctx))
		if took := time.Since(start); took != 1500*time.Millisecond {
			t.Errorf("the client left after 1.5 s, the stream ended after %s", took)
		}
	})
}
