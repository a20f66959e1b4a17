package redisstore

import (
	"context"
	"strconv"
	"sync"
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

	mu   sync.Mutex
	keys [tries]string // of the last calls that failed, for probes; "" is none
	next int           // of keys, to be written
	turn int           // of keys, to be probed first
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

// note keeps the key of a call that failed.
func (b *breaker) note(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys[b.next] = key
	b.next = (b.next + 1) % tries
}

// noted returns the keys of the last calls that failed, from another one on each time:
// where a lane leads to several servers, each of them is asked.
func (b *breaker) noted() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := make([]string, 0, tries)
	for i := range tries {
		if key := b.keys[(b.turn+i)%tries]; key != "" {
			keys = append(keys, key)
		}
	}
	b.turn = (b.turn + 1) % tries
	return keys
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

// answers reports whether the lane's server would carry a request out now, or has none
// to: of a cluster's servers the one is asked that the lane is named after, so by a key
// whose call failed and whose slot it still has. If all those are elsewhere by now, so
// are their requests, and who fails next says which key to ask by.
func (l *lane) answers(ctx context.Context) bool {
	s := l.store
	if !s.conn.Slots() {
		return s.answers(ctx, s.options.prefix+"probe")
	}
	elsewhere := true
	for _, key := range l.breaker.noted() {
		key = s.probeOf(key)
		switch name, err := s.conn.Lane(ctx, slotOf(key), key); {
		case err != nil:
			elsewhere = false
		case name == l.name:
			return s.answers(ctx, key)
		}
	}
	return elsewhere
}

// probeOf returns a key for probes in the slot of another key.
func (s *Store) probeOf(key string) string {
	probe := s.options.prefix + "probe:{"
	tag, slot := tagOf(key), slotOf(key)
	for n := 0; slotOf(probe+tag+"}") != slot; n++ { // the tag has a } and no {
		tag = strconv.Itoa(n)
	}
	return probe + tag + "}"
}

// answers reports whether a request would be carried out. The server is asked to do
// what charges do, at a key of its own, so that it refuses where one would be refused:
// as a replica, with a full memory, while loading, for want of a right to its key or to
// scripts. Where a command in them is refused, that is the matter of whoever needs it.
func (s *Store) answers(ctx context.Context, key string) bool {
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
