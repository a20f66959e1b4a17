package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillgate/spillgate"
)

// A server is the shared store: a memory behind a network, with a clock of its
// own.
type server struct {
	world  *world
	clock  clock
	memory *spillgate.Memory
	ledger *ledger
	oracle *oracles // nil where answers can't be foretold
	state  condition
	spaces map[string]*spillgate.Space
}

// space returns the server's own space of that name.
func (s *server) space(sp *spillgate.Space) *spillgate.Space {
	own := s.spaces[sp.Name()]
	if own == nil {
		own, _ = spillgate.NewSpace(sp.Name(), sp.Options()) // as that was made
		s.spaces[sp.Name()] = own
	}
	return own
}

// A condition is how a server is.
type condition uint8

const (
	well       condition = iota
	refusing             // answers every call with an error
	hanging              // answers nothing
	conditions           // how many there are
)

// restart makes the server forget.
func (s *server) restart() {
	s.memory = spillgate.NewMemory()
	s.ledger.lost(s.clock.reads())
	if s.oracle != nil {
		clear(s.oracle.of)
	}
	s.world.note("server: restarts, all is forgotten")
}

// A message is one call on its way.
type message struct {
	request     *request
	charges     []spillgate.Charge
	decisions   []spillgate.Decision
	corrections []spillgate.Correction
	err         error
	under       bool
}

// goes and arrives note what is on its way, until its node knows the answer.
func (m *message) goes(l *ledger) {
	m.under = true
	for i := range m.charges {
		l.of(m.charges[i].Space, m.charges[i].Key).asked += m.charges[i].N
	}
}

func (m *message) arrives(l *ledger) {
	if m.under {
		m.under = false
		for i := range m.charges {
			l.of(m.charges[i].Space, m.charges[i].Key).asked -= m.charges[i].N
		}
	}
}

// apply carries a message out.
func (s *server) apply(m *message) {
	at := s.clock.now()
	if m.corrections != nil {
		if m.err = s.memory.Settle(context.Background(), at, m.corrections); m.err == nil {
			s.ledger.settled(m.corrections)
		}
		return
	}
	m.err = s.memory.Take(context.Background(), at, m.charges, m.decisions)
	if m.err != nil {
		s.world.fail("the store says %v", m.err)
		return
	}
	if s.oracle != nil {
		s.oracle.compare(s.world, m.charges, m.decisions)
	}
	for i := range m.charges {
		s.ledger.took(m.request, &m.charges[i], &m.decisions[i])
	}
}

// A link is the store as one node sees it: it has a time budget and a breaker,
// and says [spillgate.ErrUnavailable]. Nothing is ever sent twice.
type link struct {
	world  *world
	server *server
	faults *faults
	node   int
	budget time.Duration

	opened func()
	cut    bool // off the network
	fails  int
	shut   bool // the breaker is open
	probe  time.Duration
}

// Of the breaker: how many calls in a row have to fail, and how long after that
// one is let through.
const (
	tries      = 3
	probeEvery = 50 * time.Millisecond
)

var errCut = fmt.Errorf("simulation: no answer in time: %w", spillgate.ErrUnavailable)

// Take implements [spillgate.Store]. The time is the server's own, whatever the
// caller gives.
func (l *link) Take(_ context.Context, _ time.Time, cs []spillgate.Charge, out []spillgate.Decision) error {
	m := &message{request: l.world.current.request, charges: append([]spillgate.Charge(nil), cs...), decisions: make([]spillgate.Decision, len(cs))}
	if err := l.call(m); err != nil {
		return err
	}
	copy(out, m.decisions)
	return nil
}

// Settle implements [spillgate.Store].
func (l *link) Settle(_ context.Context, _ time.Time, cs []spillgate.Correction) error {
	return l.call(&message{corrections: append([]spillgate.Correction(nil), cs...)})
}

func (l *link) call(m *message) error {
	w := l.world
	if l.shut {
		if w.now < l.probe {
			return fmt.Errorf("simulation: breaker open: %w", spillgate.ErrUnavailable)
		}
		l.probe = w.now + probeEvery
	}
	for i := range m.charges {
		c := &m.charges[i]
		c.Space = l.server.space(c.Space)
		if m.request != nil {
			l.server.ledger.introduce(c, m.request.account(c.Space.Name()))
		}
	}
	if m.charges != nil {
		if m.request != nil {
			m.request.calls++
		}
		m.goes(l.server.ledger)
	}
	for i := range m.corrections {
		m.corrections[i].Space = l.server.space(m.corrections[i].Space)
	}
	caller := w.current
	over, answered := false, false
	finish := func(ok bool) {
		if !over {
			over, answered = true, ok
			w.wake(caller)
		}
	}
	w.after(l.budget, func() { finish(false) })
	if !l.lost() {
		w.after(l.faults.latency(w), func() {
			switch l.server.state {
			case hanging:
				return
			case refusing:
				m.err = errors.New("simulation: loading")
			default:
				l.server.apply(m)
			}
			if !l.lost() {
				w.after(l.faults.latency(w), func() { finish(true) })
			}
		})
	}
	w.pause()
	m.arrives(l.server.ledger)
	if answered && m.err == nil {
		l.fails, l.shut = 0, false
		return nil
	}
	if l.fails++; l.fails >= tries && !l.shut {
		l.shut, l.probe = true, w.now+probeEvery
		l.opened()
		w.note("node %d: breaker opens", l.node)
	}
	if !answered {
		l.server.ledger.unsure(m)
		return errCut
	}
	return fmt.Errorf("simulation: %w: %w", m.err, spillgate.ErrUnavailable)
}

// lost reports whether the network loses a message.
func (l *link) lost() bool { return l.cut || l.world.chance(l.faults.loss) }

// left returns what the server has left of an account now, without what is asked
// for already. It asks nobody.
func (s *server) left(e *entry) (units int64, ok bool) {
	for a, of := range s.ledger.accounts {
		if of != e {
			continue
		}
		m, err := e.limit.Meter()
		if err != nil {
			return 0, false
		}
		cs := []spillgate.Charge{{Space: s.spaces[a.space], Key: a.key, Meter: m}}
		out := make([]spillgate.Decision, 1)
		if err := s.memory.Take(context.Background(), s.clock.now(), cs, out); err != nil {
			return 0, false
		}
		return out[0].Remaining - e.asked, true
	}
	return 0, false
}
