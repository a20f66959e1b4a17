package redisstore

import "sync"

// maxLate is how many corrections wait for a server to be back.
const maxLate = 1024

// A backlog keeps corrections that could not be sent. They say which charge
// they are of, so that what comes too late corrects nothing.
type backlog struct {
	mu  sync.Mutex
	ops []*op
}

// keep reports whether there was room.
func (b *backlog) keep(o *op) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ops) >= maxLate {
		return false
	}
	b.ops = append(b.ops, o)
	return true
}

func (b *backlog) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ops)
}

func (b *backlog) take() []*op {
	b.mu.Lock()
	defer b.mu.Unlock()
	ops := b.ops
	b.ops = nil
	return ops
}

// resend sends what had to wait, each once more, and puts the seed back if the server
// lost it.
func (s *Store) resend() {
	s.runs(s.restoreSeed)
	s.runs(func() {
		ops := s.late.take()
		for i, o := range ops {
			if s.closed.Load() {
				s.stats.dropped.Add(uint64(len(ops) - i))
				return
			}
			if err := s.sendLate(o); err != nil {
				s.stats.dropped.Add(1)
			}
		}
	})
}

func (s *Store) sendLate(o *op) error {
	w := s.newWait(background)
	defer w.stop()
	l, err := s.laneOf(w, o)
	if err != nil || l.breaker.open.Load() {
		if s.late.keep(o) {
			return nil
		}
		return errOpen
	}
	if !o.given {
		o.now = s.now()
	}
	o.expect(s)
	l.submit(w.carry(), o)
	return s.settled(w, o)
}
