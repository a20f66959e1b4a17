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

// resend sends what had to wait, each once more, puts the seed back if the server
// lost it, and counts who shares it.
func (s *Store) resend() {
	s.runs(s.restoreSeed)
	s.runs(s.recount)
	s.runs(func() {
		for _, o := range s.late.take() {
			if s.closed.Load() && s.late.keep(o) {
				continue // which sends them all
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

// sendLast sends what still waits at the end of s, all within one budget, also to
// servers that did not answer when last they were asked.
func (s *Store) sendLast() {
	w := s.newWait(background)
	defer w.stop()
	together := map[*lane][]*op{}
	for _, o := range s.late.take() {
		l, err := s.laneOf(w, o)
		if err != nil {
			s.stats.dropped.Add(1)
			continue
		}
		if !o.given {
			o.now = s.now()
		}
		o.expect(s)
		together[l] = append(together[l], o)
	}
	for l, ops := range together {
		l.submit(false, ops...)
	}
	for _, ops := range together {
		for _, o := range ops {
			if err := s.settled(w, o); err != nil {
				s.stats.dropped.Add(1)
			}
		}
	}
}
