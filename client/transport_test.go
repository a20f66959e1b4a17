package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/client"
)

// A server answers without a network: each request with the next answer, and
// then with 200. It notes when they came, and what.
type server struct {
	answers []answer
	start   time.Time

	mu     sync.Mutex
	at     []time.Duration
	bodies []string
	open   atomic.Int64 // bodies of answers that nobody closed
}

type answer struct {
	status int
	header http.Header
	err    error
}

func refusal(status int, lines ...string) answer {
	return answer{status: status, header: header(lines...)}
}

func serve(answers ...answer) *server { return &server{answers: answers, start: time.Now()} }

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		b, _ := io.ReadAll(r.Body)
		body = string(b)
		r.Body.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := answer{status: http.StatusOK}
	if len(s.at) < len(s.answers) {
		a = s.answers[len(s.at)]
	}
	s.at, s.bodies = append(s.at, time.Since(s.start)), append(s.bodies, body)
	if a.err != nil {
		return nil, a.err
	}
	if a.header == nil {
		a.header = http.Header{}
	}
	s.open.Add(1)
	return &http.Response{
		StatusCode: a.status, Header: a.header, Request: r, ContentLength: -1,
		Body: &closing{Reader: strings.NewReader(strings.Repeat("x", 10_000)), once: func() { s.open.Add(-1) }},
	}, nil
}

type closing struct {
	io.Reader
	once func()
}

func (c *closing) Close() error {
	c.once()
	return nil
}

// exact waits as told, to the nanosecond.
var exact = client.Patience{MaxWait: time.Minute, Spread: -1}

func send(t *testing.T, rt http.RoundTripper, r *http.Request) int {
	t.Helper()
	resp, err := rt.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || len(b) != 10_000 {
		t.Errorf("the answer's body: %d bytes, %v", len(b), err)
	}
	return resp.StatusCode
}

func get(t *testing.T) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://api.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func post(t *testing.T, body io.Reader) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://api.example/", body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *server) times(t *testing.T, want ...time.Duration) {
	t.Helper()
	if len(s.at) != len(want) {
		t.Fatalf("sent at %v, want %v", s.at, want)
	}
	for i := range want {
		if s.at[i] != want[i] {
			t.Errorf("sent at %v, want %v", s.at, want)
			break
		}
	}
	if n := s.open.Load(); n != 0 {
		t.Errorf("%d bodies were left open", n)
	}
}

func TestTransportWaitsAsTold(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []answer
		status  int
		at      []time.Duration
	}{
		{"nothing refused", nil, 200, []time.Duration{0}},
		{"Retry-After", []answer{refusal(429, "Retry-After: 7"), refusal(503, "Retry-After: 1")}, 200, []time.Duration{0, 7 * time.Second, 8 * time.Second}},
		{"a quota that is used up", []answer{refusal(429, `RateLimit: "a";r=0;t=5, "b";r=3;t=50`)}, 200, []time.Duration{0, 5 * time.Second}},
		{"Retry-After goes first", []answer{refusal(429, "Retry-After: 2", `RateLimit: "a";r=0;t=5`)}, 200, []time.Duration{0, 2 * time.Second}},
		{"GitHub's 403", []answer{refusal(403, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 9")}, 200, []time.Duration{0, 9 * time.Second}},
		{"another 403", []answer{refusal(403, "X-RateLimit-Remaining: 5", "X-RateLimit-Reset: 9")}, 403, []time.Duration{0}},
		{"three tries", []answer{refusal(429, "Retry-After: 1"), refusal(429, "Retry-After: 1"), refusal(429, "Retry-After: 1")}, 429, []time.Duration{0, time.Second, 2 * time.Second}},
		{"as long as may be", []answer{refusal(429, "Retry-After: 60")}, 200, []time.Duration{0, time.Minute}},
		{"too long", []answer{refusal(429, "Retry-After: 61")}, 429, []time.Duration{0}},
		{"absurd", []answer{refusal(429, "Retry-After: 1"+strings.Repeat("0", 30))}, 429, []time.Duration{0}},
		{"other errors", []answer{refusal(500, "Retry-After: 1")}, 500, []time.Duration{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(c.answers...)
				if status := send(t, &client.Transport{Base: s, Patience: exact}, get(t)); status != c.status {
					t.Errorf("status %d, want %d", status, c.status)
				}
				s.times(t, c.at...)
			})
		})
	}
}

func TestTransportSpreadsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		var wg sync.WaitGroup
		servers := make([]*server, n)
		for i := range servers {
			servers[i] = serve(refusal(429, "Retry-After: 4"))
			wg.Go(func() { send(t, &client.Transport{Base: servers[i]}, get(t)) })
		}
		wg.Wait()
		early := 0
		for _, s := range servers {
			if at := s.at[1]; at < 4*time.Second || at > 8*time.Second {
				t.Errorf("came back after %s", at)
			} else if at < 6*time.Second {
				early++
			}
		}
		if early < n/5 || early > n*4/5 {
			t.Errorf("%d of %d came back in the first half of the spread", early, n)
		}
	})
}

// Nothing told: tries all the same, later and later.
func TestTransportBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(refusal(429), refusal(429))
		if status := send(t, &client.Transport{Base: s}, get(t)); status != 200 || len(s.at) != 3 || s.at[2] >= 1500*time.Millisecond {
			t.Errorf("status %d, sent at %v", status, s.at)
		}
	})
}

func TestTransportRepeatsOnlyWhatMayBeRepeated(t *testing.T) {
	text := func() io.Reader { return strings.NewReader("order") }
	stream := func() io.Reader { return io.MultiReader(text()) } // has no GetBody
	for _, c := range []struct {
		name   string
		method string
		body   io.Reader
		header string
		answer answer
		tries  int
	}{
		{"POST, 429 with Retry-After", "POST", text(), "", refusal(429, "Retry-After: 1"), 2},
		{"POST, 503 with Retry-After", "POST", text(), "", refusal(503, "Retry-After: 1"), 2},
		{"POST, 429 without", "POST", text(), "", refusal(429), 1},
		{"POST, 503 without", "POST", text(), "", refusal(503), 1},
		{"POST, 429 with a quota alone", "POST", text(), "", refusal(429, `RateLimit: "a";r=0;t=1`), 1},
		{"POST, 403", "POST", text(), "", refusal(403, "Retry-After: 1"), 1},
		{"PATCH, unreadable Retry-After", "PATCH", text(), "", refusal(429, "Retry-After: NaN"), 1},
		{"POST with a key of its own", "POST", text(), "Idempotency-Key", refusal(503), 2},
		{"POST without a body", "POST", nil, "", refusal(429, "Retry-After: 1"), 2},
		{"PUT", "PUT", text(), "", refusal(429), 2},
		{"PUT of a stream", "PUT", stream(), "", refusal(429, "Retry-After: 1"), 1},
		{"POST of a stream", "POST", stream(), "", refusal(429, "Retry-After: 1"), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(c.answer)
				r := post(t, c.body)
				r.Method = c.method
				if c.header != "" {
					r.Header.Set(c.header, "1")
				}
				send(t, &client.Transport{Base: s, Patience: exact}, r)
				if len(s.at) != c.tries {
					t.Errorf("sent %d times, want %d", len(s.at), c.tries)
				}
				for i, b := range s.bodies {
					if c.body != nil && b != "order" {
						t.Errorf("try %d sent the body %q", i+1, b)
					}
				}
				s.times(t, s.at...)
			})
		})
	}
}

func TestTransportGivesUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// What can't be in time is not waited for.
		s := serve(refusal(429, "Retry-After: 10"))
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		if status := send(t, &client.Transport{Base: s, Patience: exact}, get(t).WithContext(ctx)); status != 429 || time.Since(s.start) != 0 {
			t.Errorf("status %d after %s", status, time.Since(s.start))
		}
		s.times(t, 0)

		// Who leaves while it waits hears so at once.
		s = serve(refusal(429, "Retry-After: 10"))
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, leave)
		_, err := (&client.Transport{Base: s, Patience: exact}).RoundTrip(get(t).WithContext(ctx))
		if !errors.Is(err, context.Canceled) || time.Since(s.start) != 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(s.start))
		}
		s.times(t, 0)
	})
}

func TestTransportPassesErrorsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		s := serve(answer{err: broken})
		if _, err := (&client.Transport{Base: s}).RoundTrip(get(t)); err != broken {
			t.Errorf("error %v", err)
		}
		r := post(t, strings.NewReader("x"))
		r.GetBody = func() (io.ReadCloser, error) { return nil, broken }
		s = serve(refusal(429, "Retry-After: 0"))
		if _, err := (&client.Transport{Base: s, Patience: exact}).RoundTrip(r); !errors.Is(err, broken) {
			t.Errorf("error %v", err)
		}
		s.times(t, 0)
	})
}

func TestTransportTellsOfWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []client.Wait
		s := serve(refusal(429, "Retry-After: 2"), refusal(503, "Retry-After: 3"))
		send(t, &client.Transport{Base: s, Patience: exact, OnWait: func(_ *http.Request, w client.Wait) { waits = append(waits, w) }}, get(t))
		if len(waits) != 2 || waits[0] != (client.Wait{Tried: 1, Status: 429, For: 2 * time.Second}) || waits[1] != (client.Wait{Tried: 2, Status: 503, For: 3 * time.Second}) {
			t.Errorf("told of %v", waits)
		}
	})
}

func byHost(r *http.Request) string { return r.URL.Host }

func TestAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// One is refused; the next of the same host waits before it is sent,
		// those of another do not.
		s := serve(refusal(429, "Retry-After: 10"))
		tr := &client.Transport{Base: s, Patience: exact, Ahead: byHost}
		var wg sync.WaitGroup
		wg.Go(func() { send(t, tr, get(t)) })
		synctest.Wait()
		time.Sleep(4 * time.Second)
		other := get(t)
		other.URL.Host = "other.example"
		send(t, tr, other)
		send(t, tr, get(t))
		wg.Wait()
		s.times(t, 0, 4*time.Second, 10*time.Second, 10*time.Second)
	})
	synctest.Test(t, func(t *testing.T) {
		// A quota that is used up holds what comes after it; if the wait is
		// too long it is sent all the same.
		s := serve(answer{status: 200, header: header(`RateLimit: "a";r=0;t=10`)}, answer{status: 200, header: header(`RateLimit: "a";r=0;t=100`)})
		tr := &client.Transport{Base: s, Patience: exact, Ahead: byHost}
		for range 3 {
			send(t, tr, get(t))
		}
		s.times(t, 0, 10*time.Second, 10*time.Second)
	})
	synctest.Test(t, func(t *testing.T) {
		// A refusal for too long: the next is not sent until then.
		s := serve(refusal(429, "Retry-After: 100"))
		tr := &client.Transport{Base: s, Patience: exact, Ahead: byHost}
		if status := send(t, tr, get(t)); status != 429 {
			t.Errorf("status %d", status)
		}
		shut := &closing{once: func() {}}
		closed := false
		shut.once = func() { closed = true }
		r := get(t)
		r.Body = shut
		if _, err := tr.RoundTrip(r); !errors.Is(err, client.ErrHeld) || !closed {
			t.Errorf("error %v, body closed: %t", err, closed)
		}
		time.Sleep(41 * time.Second)
		if status := send(t, tr, get(t)); status != 200 {
			t.Errorf("status %d", status)
		}
		s.times(t, 0, 100*time.Second)
	})
}

// A flood of keys is not remembered without bound, and makes nobody wait.
func TestAheadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		always := roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 429, Header: header("Retry-After: 50"), Body: http.NoBody}, nil
		})
		n := 0
		tr := &client.Transport{Base: always, Patience: client.Patience{MaxWait: -1}, Ahead: func(*http.Request) string { n++; return strings.Repeat("k", n%3000) }}
		held := 0
		for range 6000 {
			resp, err := tr.RoundTrip(get(t))
			if errors.Is(err, client.ErrHeld) {
				held++
			} else if err != nil || resp.StatusCode != 429 {
				t.Fatal(resp, err)
			}
		}
		if held != 1024 {
			t.Errorf("%d keys were remembered", held)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// One absurd number does not silence a client for good: at the latest after MaxHold one
// request is sent to see, while the others are held on, and its answer holds from there.
func TestAheadSeesAgainWhetherAHoldStands(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		told    string
		most    time.Duration
		answers []answer // to those that are sent to see
		at      []time.Duration
	}{
		"an epoch":                {"1764547200", 0, []answer{{status: 200}}, []time.Duration{0, time.Hour, time.Hour}},
		"more than there is time": {"1" + strings.Repeat("0", 30), 0, []answer{{status: 200}}, []time.Duration{0, time.Hour, time.Hour}},
		"a far date":              {"Fri, 31 Dec 9999 23:59:59 GMT", 0, []answer{{status: 200}}, []time.Duration{0, time.Hour, time.Hour}},
		"another bound":           {"7200", 10 * time.Minute, []answer{{status: 200}}, []time.Duration{0, 10 * time.Minute, 10 * time.Minute}},
		"within the bound":        {"7200", 3 * time.Hour, []answer{{status: 200}}, []time.Duration{0, 2 * time.Hour, 2 * time.Hour}},
		"it stands":               {"1764547200", 0, []answer{refusal(429, "Retry-After: 1764543600"), {status: 200}}, []time.Duration{0, time.Hour, 2 * time.Hour, 2 * time.Hour}},
		"it became shorter":       {"1764547200", 0, []answer{refusal(429, "Retry-After: 120"), {status: 200}}, []time.Duration{0, time.Hour, time.Hour + 2*time.Minute, time.Hour + 2*time.Minute}},
		"no answer":               {"1764547200", 0, []answer{{err: broken}, {status: 200}}, []time.Duration{0, time.Hour, time.Hour, time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(append([]answer{refusal(429, "Retry-After: "+c.told)}, c.answers...)...)
				tr := &client.Transport{Base: s, Patience: client.Patience{MaxWait: -1}, Ahead: byHost, MaxHold: c.most}
				send(t, tr, get(t))
				for passed := 0; passed < 2; {
					resp, err := tr.RoundTrip(get(t))
					if err == nil {
						resp.Body.Close()
						if resp.StatusCode == 200 {
							passed++
						}
					} else if errors.Is(err, client.ErrHeld) {
						if time.Sleep(time.Minute); time.Since(s.start) > 24*time.Hour {
							t.Fatal("held for a day")
						}
					}
				}
				s.times(t, c.at...)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		// Of many who have waited for the same instant one is sent.
		s := serve(refusal(429, "Retry-After: 1764547200"), refusal(429, "Retry-After: 7200"))
		tr := &client.Transport{Base: s, Patience: client.Patience{MaxWait: 90 * time.Minute, Tries: 1, Spread: -1}, Ahead: byHost}
		send(t, tr, get(t))
		var wg sync.WaitGroup
		var held atomic.Int32
		for range 10 {
			wg.Go(func() {
				resp, err := tr.RoundTrip(get(t))
				if errors.Is(err, client.ErrHeld) {
					held.Add(1)
				} else if err == nil {
					resp.Body.Close()
				}
			})
		}
		wg.Wait()
		if held.Load() != 9 {
			t.Errorf("%d of 10 were held on, want 9", held.Load())
		}
		s.times(t, 0, time.Hour)
	})
}
