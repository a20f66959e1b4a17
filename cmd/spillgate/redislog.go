package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// redisLog puts what the Redis client has to say among the gateway's own lines,
// in their form, one a second: while a server is away it says the same for each
// connection that it tries.
type redisLog struct {
	logger     *slog.Logger
	mu         sync.Mutex
	next       time.Time
	suppressed int64
}

// Printf is go-redis's way to log.
func (l *redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.mu.Lock()
	now := time.Now()
	if now.Before(l.next) {
		l.suppressed++
		l.mu.Unlock()
		return
	}
	suppressed := l.suppressed
	l.suppressed, l.next = 0, now.Add(time.Second)
	l.mu.Unlock()
	l.logger.WarnContext(ctx, "redis client", "says", strings.TrimPrefix(fmt.Sprintf(format, v...), "redis: "), "suppressed", suppressed)
}
