package redisstore

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate"
)

// A Store keeps the states of keys in Redis: it is a
// [spillgate.Store]. Make one with [New]. It is safe for concurrent use.
type Store struct {
	conn    Conn
	options options
	stats   counters
	// patience is how long an answer is waited for: the budget, less what it takes
	// a timer and a goroutine to say so.
	patience time.Duration

	punctual bool
	beside   chan struct{} // a place for each call that [Store.eval] may leave under way
	base     time.Time
	offset   atomic.Int64 // of the server's clock, from the time since base

	mu    sync.RWMutex
	lanes map[string]*lane
	ways  ways
	asks  map[ask]string

	told sync.Map // the latest instant that callers gave, by space: *atomic.Int64

	seed      atomic.Pointer[[16]byte] // that Seed returned
	otherSeed atomic.Bool              // the server was seen to keep another
	census    census
	every     time.Duration // both are looked at
	looking   sync.Once

	closed     atomic.Bool
	closing    chan struct{}
	background sync.WaitGroup
	late       backlog
	refusals   refusals

	ops, waits sync.Pool // not needed any more; a store's own, as are their channels and timers
}

// New returns a store on a client of go-redis: a [redis.Client], also one for
// Sentinel, or a [redis.ClusterClient]. The store uses its connections and does
// not close it. A client whose DialerRetries is not 1 tries for some 400 ms to connect
// where it is refused, so that the first requests take their whole budget and the fault
// is told as [TimedOut]. Errors wrap [ErrClient] or [ErrOption].
func New(client redis.UniversalClient, opts ...Option) (*Store, error) {
	o, err := optionsOf(opts)
	if err != nil {
		return nil, err
	}
	conn, err := newGoRedis(client, o.budget)
	if err != nil {
		return nil, err
	}
	return open(conn, o), nil
}

// Open returns a store on any client library. Errors wrap [ErrOption].
func Open(conn Conn, opts ...Option) (*Store, error) {
	o, err := optionsOf(opts)
	if err != nil {
		return nil, err
	}
	return open(conn, o), nil
}

func open(conn Conn, o options) *Store {
	now := time.Now()
	s := &Store{
		conn: conn, options: o, patience: o.budget - o.budget/10, base: now, punctual: conn.Punctual(),
		lanes: map[string]*lane{}, asks: map[ask]string{}, closing: make(chan struct{}), every: lookEvery,
		beside: make(chan struct{}, maxProbes),
	}
	s.offset.Store(now.UnixNano())
	s.ways.init(s)
	return s
}

// Close stops what runs in the background. The client stays open. Corrections
// that wait for a server are sent once more, all within one budget; what is not
// answered is dropped, and counted. Then the store is not counted any more
// ([Store.CountNodes]), which takes a second at most, and so may a count that is under
// way; a library that does not keep to time limits is not waited for. What is asked
// afterwards is answered with [spillgate.ErrClosed]. It returns nil.
func (s *Store) Close() error {
	s.mu.Lock()
	first := s.closed.CompareAndSwap(false, true)
	if first {
		close(s.closing)
	}
	s.mu.Unlock()
	s.background.Wait()
	s.sendLast()
	if first {
		s.leave()
	}
	return nil
}

// runs has f run in the background, which Close waits for, and reports whether it does:
// of a closed store nothing begins.
func (s *Store) runs(f func()) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed.Load() {
		return false
	}
	s.background.Go(f)
	return true
}

// now returns what the server's clock shows, as far as can be known here: not
// less, if it runs as this one does.
func (s *Store) now() spillgate.Instant { return s.nowAt(time.Now()) }

func (s *Store) nowAt(at time.Time) spillgate.Instant {
	return spillgate.Instant(int64(at.Sub(s.base)) + s.offset.Load())
}

// saw takes note of the server's time in the reply to what was sent then.
func (s *Store) saw(now spillgate.Instant, sent time.Time) {
	s.offset.Store(int64(now) - int64(sent.Sub(s.base)))
}

// key names a key of sp: the prefix, the space's name, 96 bits of the digest, and
// the letter of the algorithm. Among n keys the odds that any two share one are
// n²/2^97.
func (s *Store) key(sp *spillgate.Space, k spillgate.Key, of spillgate.Algorithm) string {
	b := make([]byte, 0, 96)
	b = append(b, s.options.prefix...)
	b = append(b, sp.Name()...)
	b = append(b, ':')
	var d [12]byte
	binary.BigEndian.PutUint64(d[:], k[0])
	binary.BigEndian.PutUint32(d[8:], uint32(k[1]>>32))
	return string(append(base64.RawURLEncoding.AppendEncode(b, d[:]), letters[of]...))
}

// maxAsks bounds the memory of encoded asks.
const maxAsks = 4096

// encoded returns a as the script reads it.
func (s *Store) encoded(a *ask) string {
	if a.settle {
		return a.encode()
	}
	s.mu.RLock()
	text, ok := s.asks[*a]
	s.mu.RUnlock()
	if ok {
		return text
	}
	text = a.encode()
	s.mu.Lock()
	if len(s.asks) >= maxAsks {
		clear(s.asks)
	}
	s.asks[*a] = text
	s.mu.Unlock()
	return text
}

// The ends of the times that callers may give: those beyond are taken as these.
var (
	firstGiven = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	lastGiven  = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
)

func instantOf(at time.Time) int64 {
	switch y := at.UTC().Year(); {
	case y < 1900:
		return firstGiven
	case y >= 2100:
		return lastGiven
	}
	return at.UnixNano()
}

// given returns the instant of a call at a time of the caller's: not before
// any that was given for these spaces.
func (s *Store) given(at time.Time, spaces func(yield func(*spillgate.Space) bool)) spillgate.Instant {
	now := instantOf(at)
	for range 2 { // find the latest, then tell all
		for sp := range spaces {
			v, ok := s.told.Load(sp)
			if !ok {
				first := new(atomic.Int64)
				first.Store(math.MinInt64)
				v, _ = s.told.LoadOrStore(sp, first)
			}
			latest := v.(*atomic.Int64)
			for was := latest.Load(); ; was = latest.Load() {
				if was >= now {
					now = was
					break
				}
				if latest.CompareAndSwap(was, now) {
					break
				}
			}
		}
	}
	return spillgate.Instant(now)
}

// Take implements [spillgate.Store]. It takes no more than
// [spillgate.MaxCharges] charges. Where all keys are in one slot it is one
// round trip, and however many are needed, it ends within one [Budget]. Errors wrap
// [spillgate.ErrUnavailable] if the server did not answer in time, and then say
// whether anything was sent; they wrap [spillgate.ErrCharge] or [spillgate.ErrCost]
// for charges that can't be.
//
// A deadline of ctx that is earlier ends the waiting then, with an error that wraps
// that of ctx and says whether the charges may have been made; it counts as no fault,
// and whoever is in the same call has an answer. A ctx that is cancelled ends the
// waiting at once where somebody else makes the call, and otherwise when that is over.
func (s *Store) Take(ctx context.Context, at time.Time, cs []spillgate.Charge, out []spillgate.Decision) error {
	if err := spillgate.CheckCharges(cs, out); err != nil {
		return err
	}
	if len(cs) > spillgate.MaxCharges {
		return fmt.Errorf("redisstore: %w: %d charges at once: at most %d", spillgate.ErrCharge, len(cs), spillgate.MaxCharges)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("redisstore: nothing charged: %w", err)
	}
	if s.closed.Load() {
		return spillgate.ErrClosed
	}
	if len(cs) == 0 {
		return nil
	}
	if len(cs) == 1 && at.IsZero() && s.refusedOne(&cs[0], &out[0]) {
		return nil
	}
	o := s.newOp()
	if err := o.fill(cs, s.key); err != nil {
		s.free(o)
		return err
	}
	began := time.Now()
	if !at.IsZero() {
		o.given = true
		o.now = s.given(at, func(yield func(*spillgate.Space) bool) {
			for i := range cs {
				if !yield(cs[i].Space) {
					return
				}
			}
		})
	} else {
		o.now = s.nowAt(began)
	}
	switch {
	case o.idle():
		o.judge()
	case !o.given && len(cs) > 1 && s.refusedBefore(o):
	default:
		if err := s.ask(ctx, o, began); err != nil {
			return err // whoever carries o may still do so
		}
	}
	copy(out, o.out)
	s.free(o)
	return nil
}

// ask carries o out, which began then.
func (s *Store) ask(ctx context.Context, o *op, began time.Time) (err error) {
	w := s.waitUntil(ctx, began.Add(s.patience))
	defer w.stop()
	if s.conn.Slots() && !o.oneSlot() {
		err = s.takeApart(w, o, bySlot)
	} else {
		err = s.take(w, o)
	}
	if errors.Is(err, errMoving) { // nothing was taken, or it is given back
		err = s.takeApart(w, o, byKey)
	}
	if err == nil {
		s.remember(o, began)
	}
	return err
}
