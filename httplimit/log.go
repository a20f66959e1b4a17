package httplimit

import (
	"log/slog"
	"net/http"

	"github.com/spillgate/spillgate"
)

// logRefusal logs that r was refused.
func (s *shared) logRefusal(r *http.Request, f *Refusal) {
	suppressed, ok := s.journal.Line(f.Rule)
	if !ok {
		return
	}
	var all attributes
	a := &all
	a.begin(s, r)
	client := "unknown"
	if addr := a.addr(); addr.IsValid() {
		client = addr.String()
	}
	level, what := slog.LevelInfo, "request refused"
	attrs := make([]slog.Attr, 0, 14)
	if f.Rule != "" {
		attrs = append(attrs, slog.String("rule", f.Rule), slog.String("why", f.why))
		if key := f.keyOf(a); key != "" {
			attrs = append(attrs, slog.String("key", key))
		}
	}
	if f.Err != nil {
		what = "request not decided"
		if f.fault || f.Status >= http.StatusInternalServerError { // else it is the client's fault
			level = slog.LevelWarn
		}
		attrs = append(attrs, slog.Any("error", f.Err))
	}
	attrs = append(attrs, slog.Int("status", f.Status), slog.String("client", client),
		slog.String("method", short(r.Method)), slog.String("host", short(r.Host)))
	if r.URL != nil { // without the query, which may hold secrets
		attrs = append(attrs, slog.String("path", short(r.URL.Path)))
	}
	if f.first != nil {
		attrs = f.first.AppendLog(attrs)
	}
	switch {
	case f.RetryAfter == spillgate.Never:
		attrs = append(attrs, slog.String("retry_after", "never"))
	case f.RetryAfter > 0:
		attrs = append(attrs, slog.String("retry_after", f.RetryAfter.String()))
	}
	attrs = append(attrs, slog.String("refusal_id", f.ID), slog.Int64("suppressed", suppressed))
	s.log.LogAttrs(r.Context(), level, what, attrs...)
}

// short bounds what a client can write into a log line.
func short(s string) string {
	const most = 256
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
