package redisstore

import (
	"context"
	"sync/atomic"
	"time"
)

// A breaker keeps requests off a server that does not answer. It opens after
// some calls in a row that failed; then nothing is sent on anybody's way but by
// a probe in the background, until one is answered.
type breaker struct {
	fails   atomic.Int32
	open    atomic.Bool
	store   *Store
	name    string // of the server
	answers func(context.Context) bool
}

const (
	// tries is how many calls in a row have to fail.
	tries = 3
	// probeFirst is how long after the breaker opened a probe is sent, and
	// probeEvery how long after one the next is.
	probeFirst = 20 * time.Millisecond
	probeEvery = 50 * time.Millisecond
	// maxProbes bounds those that are under way, if a library does not mind
	// their time limit.
	maxProbes = 4
)

func (b *breaker) worked() {
	b.fails.Store(0)
}

func (b *breaker) failed(f Fault) {
	if b.fails.Add(1) < tries || !b.open.CompareAndSwap(false, true) {
		return
	}
	s := b.store
	s.stats.opened.Add(1)
	s.stats.open.Add(1)
	s.options.watch(b.name, true, f)
	s.runs(b.probe)
}

// probe asks until there is an answer, then closes b.
func (b *breaker) probe() {
	s := b.store
	answers := make(chan bool, maxProbes)
	under := 0
	timer := time.NewTimer(probeFirst)
	defer timer.Stop()
	for {
		select {
		case <-s.closing:
			return
		case ok := <-answers:
			if under--; ok {
				b.fails.Store(0)
				b.open.Store(false)
				s.stats.open.Add(-1)
				s.options.watch(b.name, false, NoFault)
				s.resend()
				return
			}
		case <-timer.C:
			timer.Reset(probeEvery)
			if under < maxProbes {
				under++
				s.stats.probes.Add(1)
				go func() {
					ctx, cancel := context.WithTimeout(background, s.connecting())
					defer cancel()
					answers <- b.answers(ctx)
				}()
			}
		}
	}
}

// sure reports whether the last call was answered, so that there is a connection.
func (l *lane) sure() bool { return l.latest.Load() != 0 && l.breaker.fails.Load() == 0 }

// connecting is how long a call may take that nobody waits for: one that makes a
// connection takes several round trips more, for TCP, TLS, a password and what
// libraries tell of themselves. If it ended with the budget, the connection would be
// lost with it, and the next call would have to make one again.
func (s *Store) connecting() time.Duration { return 10 * s.options.budget }

// answers reports whether the server would carry a request out now. It is asked to do
// what charges do, at a key of its own, so that it refuses where one would be refused:
// as a replica, with a full memory, while loading, for want of a right to its key or to
// scripts. Where a command in them is refused, that is the matter of whoever needs it.
func (l *lane) answers(ctx context.Context) bool {
	s := l.store
	key := s.options.prefix + "probe"
	if s.conn.Slots() {
		key += ":{" + tagOf(l.known) + "}"
	}
	if r, ok := s.conn.(reacher); ok && r.reach(ctx, key) != nil {
		return false
	}
	calls := []Call{{SHA: probing.sha, Source: probing.source, Keys: []string{key}}}
	s.conn.Eval(ctx, calls)
	again(ctx, s.conn, calls)
	return calls[0].Err == nil || scopeOf(calls[0].Err) == ofScript
}

// A reacher is a [Conn] that can try whether there is a way to the server that
// holds a key, beside the connections that it has. A library that remembers how
// often it could not connect, and then makes everybody wait, does not hear of it.
type reacher interface {
	reach(ctx context.Context, key string) error
}
