package grpclimit

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc/codes"
)

// pause is the least time between two lines of a kind.
const pause = time.Second

// A sampler lets one line pass each pause, and counts the others.
type sampler struct {
	next    atomic.Int64 // ns since the reporter's start
	skipped atomic.Int64
}

func (s *sampler) line(now time.Duration) (skipped int64, ok bool) {
	next := s.next.Load()
	if int64(now) < next || !s.next.CompareAndSwap(next, int64(now+pause)) {
		s.skipped.Add(1)
		return 0, false
	}
	return s.skipped.Swap(0), true
}

// A reporter writes sampled log lines; nil writes none.
type reporter struct {
	log    *slog.Logger
	start  time.Time
	rules  map[string]*sampler // by name; "" is for what no rule did
	faults sampler
}

func newReporter(log *slog.Logger, rules []policy.Rule) *reporter {
	if log == nil {
		return nil
	}
	p := &reporter{log: log, start: time.Now(), rules: map[string]*sampler{"": {}}}
	for i := range rules {
		p.rules[rules[i].Name] = &sampler{}
	}
	return p
}

// line reports whether a line about that rule may be written now, and how many
// were not since the one before.
func (p *reporter) line(rule string) (skipped int64, ok bool) {
	s := p.rules[rule]
	if s == nil {
		s = p.rules[""]
	}
	return s.line(time.Since(p.start))
}

// logRefusal logs that a call was refused by o, or that err is why it was not
// decided.
func (s *server) logRefusal(a *attributes, o *policy.Outcome, err error, wait time.Duration, code codes.Code, id string) {
	if s.report == nil || code == codes.Canceled { // who left hears nothing of it
		return
	}
	level, what, rule := slog.LevelInfo, "call refused", ""
	if o != nil {
		rule = o.Rule.Name
	}
	skipped, ok := s.report.line(rule)
	if !ok {
		return
	}
	client := "unknown"
	if addr := a.ClientAddr(); addr.IsValid() {
		client = addr.String()
	}
	attrs := make([]slog.Attr, 0, 12)
	if o != nil {
		attrs = append(attrs, slog.String("rule", rule), slog.String("why", o.Why()))
		if key := s.engine.KeyText(rule, a); key != "" {
			attrs = append(attrs, slog.String("key", key))
		}
	} else {
		what = "call not decided"
		if code == codes.Unavailable || code == codes.Internal { // else it is the client's fault
			level = slog.LevelWarn
		}
		attrs = append(attrs, slog.Any("error", err))
	}
	method := a.method
	if len(method) > 256 { // the client's text
		method = method[:256] + "…"
	}
	attrs = append(attrs, slog.String("code", codeNames[code]), slog.String("client", client), slog.String("method", method))
	if o != nil && o.Override != nil {
		attrs = append(attrs, slog.String("override", o.Override.Source), slog.String("reason", o.Override.Reason), slog.String("owner", o.Override.Owner))
	}
	switch {
	case wait == spillgate.Never:
		attrs = append(attrs, slog.String("retry_after", "never"))
	case wait > 0:
		attrs = append(attrs, slog.String("retry_after", wait.String()))
	}
	attrs = append(attrs, slog.String("refusal_id", id), slog.Int64("suppressed", skipped))
	s.report.log.LogAttrs(a.ctx, level, what, attrs...)
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
