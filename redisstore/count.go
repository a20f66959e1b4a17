package redisstore

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Nodes is how many stores share a server, as [Store.CountNodes] tells it.
type Nodes struct {
	// Count is how many are open there under the same prefix and count each other, this
	// one too; 0 as long as they could not be counted. It grows with the next count, and
	// is lowered when all counts of 15 s were lower: who starts again is not missed, nor
	// are those whom a server has lost that began again empty. While the server can't be
	// asked it is the last that was known.
	Count int
	// Mutual says that all the others had the time to count this one, and that the count
	// is not old: what all hold together of what is divided by Count is no more than the
	// whole. It is false for the first 15 s, and while counts have failed for 10 s. Leases
	// rest as long as it is: give [spillgate.Leased.SetNodes] Count if it is true, else 0.
	Mutual bool
	// Fault says why the last count failed, [NoFault] if it did not. [Denied] and
	// [WrongType] last until somebody does something about it.
	Fault Fault
}

// countScript puts down who is here, and when, drops those who were not for a while,
// and whoever seems to come from the future, after the clock was set back, and counts.
// The key lasts an hour, so that a server that drops keys to make room begins with others.
const countScript = `local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZADD', KEYS[1], ARGV[3] == '1' and now or 0, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')
redis.call('EXPIRE', KEYS[1], '3600')
return {redis.call('ZCARD', KEYS[1])}`

var counting = scriptOf(countScript)

// countTime bounds a count, for which nobody waits but [Store.CountNodes].
const countTime = time.Second

// A census counts who shares the server.
type census struct {
	mu   sync.Mutex
	tell func(Nodes) // nil if nobody wants to know
	told bool
	name string // of this store

	nodes       Nodes
	first, last time.Time // when the first count in a row and the last was asked for
	mutual      bool      // there were enough in a row once
	fewer       time.Time // since when all counts were lower; zero if the last was not
	least       int       // and the highest of those
}

// CountNodes announces s on the server, and counts the stores that are announced there
// under the same prefix: at once, every 5 s, and when a server answers again. f is told
// what came of it, at first before CountNodes returns, which takes a second at most, and
// then whenever it changes; it must not block, nor close s. Of several f the last is told.
//
// A store that is closed is not counted any more; one that was lost is for 15 s. No
// request waits for any of this. It takes one more key, of the prefix and "nodes", which
// ends by itself within an hour.
func (s *Store) CountNodes(f func(Nodes)) {
	c := &s.census
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tell, c.told = f, false; c.name == "" {
		c.name = rand.Text()
	}
	s.count()
	s.look()
}

// recount counts again, if somebody wants to know and nobody is about it.
func (s *Store) recount() {
	if s.census.mu.TryLock() {
		defer s.census.mu.Unlock()
		s.count()
	}
}

// count counts, and tells what is new; the census is locked.
func (s *Store) count() {
	c := &s.census
	if c.tell == nil || s.closed.Load() {
		return
	}
	was, asked := c.nodes, time.Now()
	n, fault := s.announce(true)
	if fault == NoFault {
		c.counted(n, asked, s.every)
	} else {
		c.failed(fault, asked, s.every)
	}
	s.stats.nodes.Store(int64(c.nodes.Count))
	if !c.told || c.nodes != was {
		c.told = true
		c.tell(c.nodes)
	}
}

// counted takes note of n stores, counted every so often.
func (c *census) counted(n int, asked time.Time, every time.Duration) {
	if !c.mutual && c.old(asked, every) { // others may not have counted meanwhile
		c.first = asked
	}
	c.last = asked
	long := lifeOf(every) - every/10 // which is for timers that are not quite even
	c.mutual = c.mutual || asked.Sub(c.first) >= long
	switch {
	case n >= c.nodes.Count:
		c.nodes.Count, c.fewer, c.least = n, time.Time{}, 0
	case c.fewer.IsZero():
		c.fewer, c.least = asked, n
	default:
		c.least = max(c.least, n)
		if asked.Sub(c.fewer) >= long {
			c.nodes.Count, c.fewer = c.least, time.Time{}
		}
	}
	c.nodes.Mutual, c.nodes.Fault = c.mutual, NoFault
}

// failed takes note of a count that failed.
func (c *census) failed(fault Fault, asked time.Time, every time.Duration) {
	c.nodes.Fault, c.fewer = fault, time.Time{} // others could not announce themselves, either
	if c.old(asked, every) {
		c.nodes.Mutual = false
	}
}

// old reports whether the last count is two turns old, or there is none.
func (c *census) old(asked time.Time, every time.Duration) bool {
	return asked.Sub(c.last) >= 2*every-every/2
}

// lifeOf is for how long a store is counted that is not heard of any more.
func lifeOf(every time.Duration) time.Duration { return 3 * every }

// leave ends the announcement of s, if there is one and the server answers.
func (s *Store) leave() {
	c := &s.census
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.IsZero() && c.nodes.Fault == NoFault && s.stats.open.Load() == 0 {
		s.announce(false)
	}
}

// announce says on the server whether s is here, and returns how many are.
func (s *Store) announce(here bool) (int, Fault) {
	ctx, cancel := context.WithTimeout(background, min(countTime, s.connecting()))
	defer cancel()
	is := "0"
	if here {
		is = "1"
	}
	calls := s.eval(ctx, []Call{{
		SHA: counting.sha, Source: counting.source, Keys: []string{s.options.prefix + "nodes"},
		Args: []string{s.census.name, strconv.FormatInt(lifeOf(s.every).Milliseconds(), 10), is},
	}})
	if err := calls[0].Err; err != nil {
		if strings.Contains(err.Error(), "WRONGTYPE") {
			return 0, WrongType
		}
		return 0, KindOf(err)
	}
	if len(calls[0].Reply) == 1 {
		if n, ok := calls[0].Reply[0].(int64); ok {
			return int(n), NoFault
		}
	}
	return 0, Broken
}
