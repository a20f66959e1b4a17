package httplimit

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate"
)

// pause is the least time between two lines about one rule.
const pause = time.Second

// A sampler lets one line pass each pause, and counts the others. The zero
// value lets the first pass.
type sampler struct {
	next    atomic.Int64 // ns since the reporter's start
	skipped atomic.Int64
}

// line reports whether a line may be written now, and how many were not since
// the one before.
func (s *sampler) line(now time.Duration) (skipped int64, ok bool) {
	next := s.next.Load()
	if int64(now) < next || !s.next.CompareAndSwap(next, int64(now+pause)) {
		s.skipped.Add(1)
		return 0, false
	}
	return s.skipped.Swap(0), true
}

// A reporter writes sampled log lines. It has no goroutine: what was left out
// is told by the next line.
type reporter struct {
	log    *slog.Logger
	start  time.Time
	rules  map[string]*sampler // by name; "" is for what no rule did
	faults sampler
}

// newReporter returns nil if there is nothing to write to.
func newReporter(log *slog.Logger, rules ...string) *reporter {
	if log == nil {
		return nil
	}
	p := &reporter{log: log, start: time.Now(), rules: map[string]*sampler{"": {}}}
	for _, name := range rules {
		p.rules[name] = &sampler{}
	}
	return p
}

// refusal logs that a request was refused.
func (p *reporter) refusal(a *attributes, f *Refusal) {
	s := p.rules[f.Rule]
	if s == nil {
		s = p.rules[""]
	}
	skipped, ok := s.line(time.Since(p.start))
	if !ok {
		return
	}
	r, client := a.request, "unknown"
	if addr := a.addr(); addr.IsValid() {
		client = addr.String()
	}
	level, what := slog.LevelInfo, "request refused"
	attrs := make([]slog.Attr, 0, 12)
	if f.Rule != "" {
		attrs = append(attrs, slog.String("rule", f.Rule), slog.String("why", f.why))
		if key := f.keyOf(a); key != "" {
			attrs = append(attrs, slog.String("key", key))
		}
	}
	if f.Err != nil {
		what = "request not decided"
		if f.Status >= http.StatusInternalServerError { // else it is the client's fault
			level = slog.LevelWarn
		}
		attrs = append(attrs, slog.Any("error", f.Err))
	}
	attrs = append(attrs, slog.Int("status", f.Status), slog.String("client", client),
		slog.String("method", short(r.Method)), slog.String("host", short(r.Host)))
	if r.URL != nil { // without the query, which may hold secrets
		attrs = append(attrs, slog.String("path", short(r.URL.Path)))
	}
	attrs = appendOverride(attrs, f)
	switch {
	case f.RetryAfter == spillgate.Never:
		attrs = append(attrs, slog.String("retry_after", "never"))
	case f.RetryAfter > 0:
		attrs = append(attrs, slog.String("retry_after", f.RetryAfter.String()))
	}
	attrs = append(attrs, slog.String("refusal_id", f.ID), slog.Int64("suppressed", skipped))
	p.log.LogAttrs(r.Context(), level, what, attrs...)
}

// fault logs that the store failed and the rules' word for that was applied,
// or that a verdict could not be settled.
func (p *reporter) fault(what string, err error) {
	if p == nil || err == nil {
		return
	}
	if skipped, ok := p.faults.line(time.Since(p.start)); ok {
		p.log.LogAttrs(context.Background(), slog.LevelWarn, what, slog.Any("error", err), slog.Int64("suppressed", skipped))
	}
}

// short bounds what a client can write into a log line.
func short(s string) string {
	const most = 256
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
