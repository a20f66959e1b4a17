package grpclimit

import (
	"log/slog"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc/codes"
)

// logRefusal logs that a call was refused by o, or that err is why it was not
// decided.
func (s *server) logRefusal(a *attributes, o *policy.Outcome, err error, wait time.Duration, code codes.Code, id string) {
	if code == codes.Canceled { // who left hears nothing of it
		return
	}
	level, what, rule := slog.LevelInfo, "call refused", ""
	if o != nil {
		rule = o.Rule.Name
	}
	suppressed, ok := s.journal.Line(rule)
	if !ok {
		return
	}
	client := "unknown"
	if addr := a.ClientAddr(); addr.IsValid() {
		client = addr.String()
	}
	attrs := make([]slog.Attr, 0, 14)
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
	attrs = append(attrs, slog.String("code", policy.CodeName(uint32(code))), slog.String("client", client), slog.String("method", method))
	if o != nil {
		attrs = o.AppendLog(attrs)
	}
	switch {
	case wait == spillgate.Never:
		attrs = append(attrs, slog.String("retry_after", "never"))
	case wait > 0:
		attrs = append(attrs, slog.String("retry_after", wait.String()))
	}
	attrs = append(attrs, slog.String("refusal_id", id), slog.Int64("suppressed", suppressed))
	s.log.LogAttrs(a.ctx, level, what, attrs...)
}
