package redisstore

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/spillgate/spillgate"
)

// ways finds the lane of a slot. Where a client has to ask a cluster first which
// server that is, and none answers, nobody waits for it after some tries: it has
// a breaker as a lane has.
type ways struct {
	breaker breaker
	known   atomic.Bool // a server was found once; from then on no client waits
}

func (y *ways) init(s *Store) {
	y.breaker = breaker{store: s, name: everyServer, answers: func(ctx context.Context) bool {
		key := y.breaker.noted()[0]
		_, err := s.conn.Lane(ctx, slotOf(key), key)
		return err == nil
	}}
}

// everyServer is how [Watch] and faults name a cluster of which no server was
// ever reached.
const everyServer = "cluster"

// laneOf returns the lane of o's slot, if that is known before w is over.
func (s *Store) laneOf(w *wait, o *op) (*lane, error) {
	name, err := s.way(w, o.slot, o.key())
	if err != nil {
		return nil, err
	}
	s.mu.RLock()
	l := s.lanes[name]
	s.mu.RUnlock()
	if l != nil {
		return l, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l = s.lanes[name]; l == nil {
		l = newLane(s, name)
		s.lanes[name] = l
	}
	return l, nil
}

// way returns the name of the server that holds a slot.
func (s *Store) way(w *wait, slot uint16, key string) (string, error) {
	y := &s.ways
	if y.breaker.open.Load() {
		s.stats.shut.Add(1)
		return "", errOpen
	}
	ctx := w.ctx
	if !y.known.Load() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, w.deadline)
		defer cancel()
	}
	name, err := s.conn.Lane(ctx, slot, key)
	if err == nil {
		if !y.known.Load() {
			y.known.Store(true)
			y.breaker.worked()
		}
		return name, nil
	}
	fault := KindOf(err)
	s.stats.faults[fault].Add(1)
	if !y.known.Load() && w.ctx.Err() == nil { // else one slot has none, or the caller left
		y.breaker.note(key)
		y.breaker.failed(fault)
	}
	return "", fmt.Errorf("redisstore: %w: no server for the slot: %w", spillgate.ErrUnavailable, err)
}
