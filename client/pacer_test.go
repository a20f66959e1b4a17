package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/client"
)

func TestPacerKeepsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve()
		p := &client.Pacer{Base: s, Limiter: spillgate.Must("2/s burst 2")}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { send(t, p, get(t)) })
		}
		other := get(t)
		other.URL.Host = "other.example:8443"
		wg.Go(func() { send(t, p, other) })
		wg.Wait()
		s.times(t, 0, 0, 0, 500*time.Millisecond, time.Second, 1500*time.Millisecond)
	})
}

// One host is one host, however its name is spelled.
func TestPacerCountsHostsNotSpellings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve()
		p := &client.Pacer{Base: s, Limiter: spillgate.Must("1/s burst 1")}
		var want []time.Duration
		for i, u := range []string{
			"http://a.example/x", "http://A.EXAMPLE/", "http://a.example:80/y", "http://a.example./", "HTTP://A.example.:80",
		} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", u, nil)
			if err != nil {
				t.Fatal(err)
			}
			send(t, p, r)
			want = append(want, time.Duration(i)*time.Second)
		}
		// These are others: another port, another scheme's port, another name.
		for _, u := range []string{"http://a.example:443", "http://b.example", "http://[2001:db8::1]", "http://a.example:8080"} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", u, nil)
			if err != nil {
				t.Fatal(err)
			}
			send(t, p, r)
			want = append(want, 4*time.Second)
		}
		for _, u := range []string{"http://[2001:DB8:0::1]:80"} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", u, nil)
			if err != nil {
				t.Fatal(err)
			}
			send(t, p, r)
			want = append(want, 5*time.Second)
		}
		s.times(t, want...)
	})
}

func TestPacerGivesUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve()
		p := &client.Pacer{Base: s, Limiter: spillgate.Must("1/10s burst 1"), MaxWait: 5 * time.Second, Key: func(*http.Request) string { return "all" }}
		send(t, p, get(t))
		closed := false
		r := get(t)
		r.Body = &closing{once: func() { closed = true }}
		_, err := p.RoundTrip(r)
		var late *spillgate.DeadlineError
		if !errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) || time.Since(s.start) != 0 || !closed {
			t.Errorf("%v after %s, body closed: %t", err, time.Since(s.start), closed)
		}
		// Who gave up has paid nothing.
		time.Sleep(10 * time.Second)
		send(t, p, get(t))
		s.times(t, 0, 10*time.Second)
	})
}

func TestPacerFreesSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := spillgate.Must("1 at once")
		p := &client.Pacer{Base: serve(), Limiter: lim}
		ask := func() *http.Response {
			resp, err := p.RoundTrip(get(t))
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		free := func() bool { return lim.Peek("api.example").Remaining == 1 }
		resp := ask()
		if free() {
			t.Error("free while the answer is being read")
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if !free() {
			t.Error("held after the end of the body")
		}
		resp.Body.Close()
		ask().Body.Close()
		if !free() {
			t.Error("held after Close")
		}
		p.Base = serve(answer{err: errors.New("broken")})
		if _, err := p.RoundTrip(get(t)); err == nil || !free() {
			t.Errorf("error %v, free: %t", err, free())
		}
		p.Base = roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
		})
		ask()
		if !free() {
			t.Error("held without a body")
		}
	})
}

// A connection that was switched stays one that can be written to.
func TestPacerPassesSwitchedConnections(t *testing.T) {
	lim := spillgate.Must("1 at once")
	var sent strings.Builder
	p := &client.Pacer{Limiter: lim, Base: roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 101, Body: struct {
			io.ReadCloser
			io.Writer
		}{io.NopCloser(strings.NewReader("")), &sent}}, nil
	})}
	resp, err := p.RoundTrip(get(t))
	if err != nil {
		t.Fatal(err)
	}
	w, ok := resp.Body.(io.Writer)
	if !ok {
		t.Fatal("no writer")
	}
	_, _ = io.WriteString(w, "hello")
	if sent.String() != "hello" || lim.Peek("api.example").Remaining != 0 {
		t.Errorf("sent %q, remaining %d", &sent, lim.Peek("api.example").Remaining)
	}
	resp.Body.Close()
	if lim.Peek("api.example").Remaining != 1 {
		t.Error("held after Close")
	}
}

func TestPacerNeedsALimiter(t *testing.T) {
	if _, err := (&client.Pacer{}).RoundTrip(get(t)); err != client.ErrNoLimiter {
		t.Errorf("error %v", err)
	}
}
