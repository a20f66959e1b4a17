package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRedisLog: the client's lines are in the form of the others, one a second.
func TestRedisLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := &redisLog{logger: slog.New(slog.NewJSONHandler(&out, nil))}
		for range 5 {
			l.Printf(t.Context(), "redis: connection pool: failed to dial after %d attempts", 5)
		}
		<-time.After(time.Second)
		l.Printf(t.Context(), "sentinel: new master=%q", "b")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], `"says":"connection pool: failed to dial after 5 attempts","suppressed":0`) ||
			!strings.Contains(lines[1], `"says":"sentinel: new master=\"b\"","suppressed":4`) {
			t.Errorf("%d lines:\n%s", len(lines), &out)
		}
	})
}
