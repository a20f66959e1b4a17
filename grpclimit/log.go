package grpclimit

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
	log              *slog.Logger
	start            time.Time
	refusals, faults sampler
}

func newReporter(log *slog.Logger) *reporter {
	if log == nil {
		return nil
	}
	return &reporter{log: log, start: time.Now()}
}

// refusal logs that a call was refused: never its metadata, which may hold
// secrets.
func (p *reporter) refusal(a *attributes, v *policy.Verdict, s *status.Status) {
	if p == nil {
		return
	}
	skipped, ok := p.refusals.line(time.Since(p.start))
	if !ok {
		return
	}
	client := "unknown"
	if addr := a.ClientAddr(); addr.IsValid() {
		client = addr.String()
	}
	level, what, attrs := slog.LevelInfo, "call refused", make([]slog.Attr, 0, 6)
	if o := v.Refusing(); o != nil {
		attrs = append(attrs, slog.String("rule", o.Rule.Name))
	} else {
		what = "call not decided"
		if c := s.Code(); c == codes.Unavailable || c == codes.Internal { // else it is the client's fault
			level = slog.LevelWarn
		}
		attrs = append(attrs, slog.Any("error", v.Err()))
	}
	method := a.method
	if len(method) > 256 { // the client's text
		method = method[:256] + "…"
	}
	attrs = append(attrs, slog.String("code", codeNames[s.Code()]), slog.String("client", client),
		slog.String("method", method), slog.Int64("suppressed", skipped))
	p.log.LogAttrs(a.ctx, level, what, attrs...)
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
