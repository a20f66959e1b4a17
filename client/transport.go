package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// A Transport is a round tripper that obeys: it waits as long as a refusal
// says and asks again, as the package comment tells. The zero value is ready to
// use. It is safe for concurrent use, and must not be changed or copied after
// its first request.
type Transport struct {
	// Base sends the requests; nil means http.DefaultTransport.
	Base http.RoundTripper
	// Patience bounds the waits.
	Patience
	// Ahead, if not nil, says which requests a server counts together: often
	// those with one host, or one token. What the answer to one of them says then holds for
	// those that come after it: a request waits before it is sent at
	// all for as long as an earlier refusal told, or until a quota resets of
	// which nothing remains. If that wait does not fit into the bounds, a
	// request that was told to wait by a refusal fails with [ErrHeld], and
	// one that only knows its quota to be used up is sent. Requests for which
	// Ahead returns "" are not held. At most 1,024 keys are remembered.
	Ahead func(*http.Request) string
	// MaxHold is the longest that one answer holds requests back by Ahead; 0 or
	// less means an hour. If it said longer, one request is sent then to see, and its
	// answer holds from there on: so a number that the server did not mean, such as a
	// date in place of seconds, ends.
	MaxHold time.Duration
	// OnWait, if not nil, is told of every wait before it begins.
	OnWait func(*http.Request, Wait)

	mu    sync.Mutex
	holds map[string]hold
}

// A Wait is one that is about to begin.
type Wait struct {
	// Tried is how often the request was sent already.
	Tried int
	// Status is that of the refusal; 0 if the request was not sent yet, and
	// waits for what others were told.
	Status int
	// For is how long the wait is, its spread included.
	For time.Duration
}

// ErrHeld is wrapped by the error of a request that was not sent, because the
// server had said before that it would be refused for longer than the client
// waits.
var ErrHeld = errors.New("held back as the server asked")

// RoundTrip sends r, and sends it again when it was refused.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key := ""
	if t.Ahead != nil {
		key = t.Ahead(r)
	}
	probe := false
	if key != "" {
		var err error
		if probe, err = t.held(r, key); err != nil {
			discard(r.Body)
			return nil, err
		}
	}
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	ctx := r.Context()
	for tried, sent := 1, r; ; tried++ {
		resp, err := base.RoundTrip(sent)
		if probe {
			t.probed(key, err == nil)
			probe = false
		}
		if err != nil {
			return resp, err
		}
		told := Read(resp.Header, time.Now())
		refused := isRefusal(resp.StatusCode, told)
		if key != "" {
			t.remember(key, told, refused)
		}
		if !refused || !repeatable(r, resp.StatusCode, told) {
			return resp, nil
		}
		wait, ok := t.Next(ctx, tried, told.Wait())
		if !ok {
			return resp, nil
		}
		drain(resp.Body)
		if t.OnWait != nil {
			t.OnWait(r, Wait{Tried: tried, Status: resp.StatusCode, For: wait})
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
		if sent, err = again(r); err != nil {
			return nil, err
		}
	}
}

// isRefusal reports whether an answer refuses a request for its rate.
func isRefusal(status int, told Told) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true
	case http.StatusForbidden: // GitHub's
		return told.Wait() >= 0
	}
	return false
}

// repeatable reports whether r may be sent again after that answer.
func repeatable(r *http.Request, status int, told Told) bool {
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return false
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	if len(r.Header["Idempotency-Key"]) > 0 || len(r.Header["X-Idempotency-Key"]) > 0 {
		return true
	}
	return told.RetryAfter >= 0 && status != http.StatusForbidden
}

// again returns r with its body as it was at first.
func again(r *http.Request) (*http.Request, error) {
	c := r.Clone(r.Context())
	if r.GetBody != nil && r.Body != nil && r.Body != http.NoBody {
		body, err := r.GetBody()
		if err != nil {
			return nil, fmt.Errorf("client: the body of %s %s can't be had again: %w", r.Method, r.URL.Redacted(), err)
		}
		c.Body = body
	}
	return c, nil
}

// maxDrain is how much of a refusal is read so that its connection can be used
// again, and for how long; after that it is cheaper to close it.
const (
	maxDrain  = 4 << 10
	drainTime = 100 * time.Millisecond
)

// drain reads the rest of a refusal. A server that promises more than it sends
// holds nobody up: closing the body ends the reading.
func drain(body io.ReadCloser) {
	late := time.AfterFunc(drainTime, func() { _ = body.Close() })
	_, _ = io.CopyN(io.Discard, body, maxDrain)
	if late.Stop() {
		_ = body.Close()
	}
}

// discard closes the body of a request that is not sent: a round tripper does
// so, whatever happens.
func discard(body io.Closer) {
	if body != nil {
		_ = body.Close()
	}
}

// maxHolds is how many keys are remembered. Beyond it, newcomers are not held.
const maxHolds = 1024

// defaultMaxHold is that of a [Transport].
const defaultMaxHold = time.Hour

func (t *Transport) maxHold() time.Duration {
	if t.MaxHold <= 0 {
		return defaultMaxHold
	}
	return t.MaxHold
}

// A hold says until when requests are kept back.
type hold struct {
	until time.Time
	firm  bool // by a refusal
	more  bool // longer was said: then one is sent to see
}

// held keeps r back as long as was said to those before it. It reports whether r is
// the one that is sent to see; the others wait on.
func (t *Transport) held(r *http.Request, key string) (probe bool, err error) {
	ctx := r.Context()
	p := Patience{MaxWait: t.MaxWait, Spread: t.Spread}
	if p.MaxWait == 0 {
		p.MaxWait = defaultMaxWait
	}
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		h, left, probe := t.hold(key)
		if left <= 0 {
			return probe, nil
		}
		wait, ok := p.Next(ctx, 0, left)
		switch {
		case ok:
		case ctx.Err() != nil || !h.firm:
			return false, ctx.Err()
		default:
			return false, fmt.Errorf("client: %w, for %s more", ErrHeld, left)
		}
		if t.OnWait != nil {
			t.OnWait(r, Wait{For: wait})
		}
		if err := sleep(ctx, wait); err != nil {
			return false, err
		}
		// Meanwhile others may have been told to wait longer. All waits
		// together keep the bound.
		if p.MaxWait -= wait; p.MaxWait == 0 {
			p.MaxWait = -1
		}
	}
}

// hold returns what holds requests back, and for how long. Who asks first when it is
// time to see is to do so.
func (t *Transport) hold(key string) (h hold, left time.Duration, probe bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h = t.holds[key]
	left = time.Until(h.until)
	if left > 0 || !h.more {
		return h, left, false
	}
	t.holds[key] = hold{time.Now().Add(t.maxHold()), h.firm, true}
	return h, 0, true
}

// probed ends what held requests back: the server answered one that was sent to see,
// and its answer says what is to come. If there was none, the next one sees.
func (t *Transport) probed(key string, answered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, known := t.holds[key]
	switch {
	case answered:
		delete(t.holds, key)
	case known:
		h.until = time.Now()
		t.holds[key] = h
	}
}

// remember notes what those who come after shall wait for.
func (t *Transport) remember(key string, told Told, refused bool) {
	wait := told.exhausted()
	if refused {
		wait = told.Wait()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if wait <= 0 {
		if !refused && t.holds[key].until.Before(now) {
			delete(t.holds, key)
		}
		return
	}
	if t.holds == nil {
		t.holds = make(map[string]hold)
	}
	h, known := t.holds[key]
	if !known && len(t.holds) >= maxHolds && !t.forget(now) {
		return
	}
	// Answers can overtake one another: the later instant holds.
	most := t.maxHold()
	if until := now.Add(min(wait, most)); until.After(h.until) {
		t.holds[key] = hold{until, refused, wait > most}
	}
}

// forget drops what is over. It reports whether there was any.
func (t *Transport) forget(now time.Time) bool {
	before := len(t.holds)
	for key, h := range t.holds {
		if h.until.Before(now) {
			delete(t.holds, key)
		}
	}
	return len(t.holds) < before
}
