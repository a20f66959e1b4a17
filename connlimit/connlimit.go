// Package connlimit limits connections by the address of their peer, before
// TLS or SSH spends anything on them: how often one may be opened, and how many
// may be open.
//
//	ln = connlimit.New(ln, connlimit.Accepts(spillgate.Must("20/s burst 50")), connlimit.Open(100))
//	http.ServeTLS(ln, handler, "cert.pem", "key.pem")
//
// A connection beyond a limit is closed at once, without a word: nothing was
// agreed yet in which one could be said. Those of others are accepted meanwhile.
//
// The address is the peer's, the only one that is known before a request is
// read. Behind a load balancer that is one address for all the world: exempt it
// ([Exempt]), and limit requests instead. IPv6 peers are grouped by /64, as in
// the keys of a policy ([Group]). What is remembered of addresses is bounded as in every
// [spillgate.Limiter].
package connlimit

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/clientip"
)

// An Option shapes a [Listener].
type Option func(*Listener)

// Accepts limits how often a peer opens a connection. The limit should be a
// bucket or a window: nobody waits here. A Concurrency limit belongs to [Open]
// and refuses everything but the first of its slots, for they are not given
// back.
func Accepts(lim *spillgate.Limiter) Option {
	return func(l *Listener) { l.accepts = lim }
}

// Open limits how many connections of a peer are open at the same time, 1 to
// [MaxOpen]; less counts as 1 and more as MaxOpen. A connection counts until
// it is closed, however long that takes.
func Open(n int) Option {
	return func(l *Listener) {
		limit := spillgate.Limit{Algorithm: spillgate.Concurrency, Rate: int64(max(1, min(n, MaxOpen))), Period: maxHold}
		l.open, _ = spillgate.New(limit) // in range
	}
}

// MaxOpen is the most that [Open] takes.
const MaxOpen = 1 << 20

// maxHold is after how long a slot is taken for lost: the longest that a limit
// can say, since connections tell when they are closed.
const maxHold = 366 * 24 * time.Hour

// Group says how many bits of an IPv6 address make one peer, 32 to 128 (values
// beyond count as those). Without it they are 64: a subscriber has a whole
// /64. IPv4 addresses are always whole.
func Group(bits int) Option {
	return func(l *Listener) { l.bits = max(32, min(bits, 128)) }
}

// Exempt lets peers pass that are in a set of their own, such as the load
// balancers in front: [clientip.Networks.Contains] of a list, as a rule. It is asked
// for every connection, with the address in normal form ([clientip.Normal]);
// peers on a unix socket have the zero Addr. May be given several times.
func Exempt(is func(netip.Addr) bool) Option {
	return func(l *Listener) { l.exempt = append(l.exempt, is) }
}

// Reset closes what is refused with a TCP reset instead of in good order, so
// that no state of it stays in the kernel. The peer reads "connection reset".
func Reset() Option {
	return func(l *Listener) { l.reset = true }
}

// OnRefuse is told of every refusal, with the address in normal form and by
// which limit. It must be quick: the next connection waits for it.
func OnRefuse(tell func(peer netip.Addr, why Reason)) Option {
	return func(l *Listener) { l.onRefuse = tell }
}

// A Reason says which limit refused a connection.
type Reason uint8

const (
	// TooFast : the peer opened too many in a short time; see [Accepts].
	TooFast Reason = iota
	// TooMany : the peer has too many open; see [Open].
	TooMany
)

// String returns the reason in words.
func (r Reason) String() string {
	if r == TooMany {
		return "too many open"
	}
	return "opened too fast"
}

// A Listener is a net.Listener that accepts what the limits let pass. Make one
// with [New]. It is safe for concurrent use.
type Listener struct {
	net.Listener
	accepts, open *spillgate.Limiter
	bits          int
	exempt        []func(netip.Addr) bool
	reset         bool
	onRefuse      func(netip.Addr, Reason)

	closing sync.Once
	closed  chan struct{}

	accepted, exempted, tooFast, tooMany, faults, now atomic.Int64
}

// New limits the connections of ln. Without [Accepts] and [Open] it only
// counts.
func New(ln net.Listener, opts ...Option) *Listener {
	l := &Listener{Listener: ln, bits: clientip.DefaultV6Bits, closed: make(chan struct{})}
	for _, opt := range opts {
		opt(l)
	}
	return l
}

// Stats counts connections since the start.
type Stats struct {
	Accepted int64 // let pass, those that are exempt included
	Exempt   int64
	TooFast  int64 // refused, see [TooFast]
	TooMany  int64 // refused, see [TooMany]
	Faults   int64 // of the listener, that passed: no file descriptors, say
	Open     int64 // of those accepted, now
}

// Stats returns the counts. Each is exact; together they are not of one
// instant.
func (l *Listener) Stats() Stats {
	return Stats{
		Accepted: l.accepted.Load(), Exempt: l.exempted.Load(), TooFast: l.tooFast.Load(),
		TooMany: l.tooMany.Load(), Faults: l.faults.Load(), Open: l.now.Load(),
	}
}

// Bounds of the wait after a fault that may pass.
const (
	firstPause = 5 * time.Millisecond
	maxPause   = time.Second
)

// Accept returns the next connection that may pass. Faults that can pass, as
// when there are no file descriptors left, are waited out: from 5 ms, doubled
// up to 1 s. Other errors are the listener's.
func (l *Listener) Accept() (net.Conn, error) {
	pause := firstPause
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			if !passing(err) {
				return nil, err
			}
			l.faults.Add(1)
			if !l.wait(pause) {
				return nil, net.ErrClosed
			}
			pause = min(2*pause, maxPause)
			continue
		}
		pause = firstPause
		if limited := l.admit(c); limited != nil {
			return limited, nil
		}
	}
}

// passing reports whether an error of Accept may pass by itself.
func passing(err error) bool {
	var t interface{ Temporary() bool }
	return !errors.Is(err, net.ErrClosed) && errors.As(err, &t) && t.Temporary()
}

// wait reports false if the listener was closed meanwhile.
func (l *Listener) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.closed:
		return false
	}
}

// Close closes the listener. Connections stay open.
func (l *Listener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// admit returns c as one that is counted, or closes it and returns nil.
func (l *Listener) admit(c net.Conn) net.Conn {
	peer := peerOf(c.RemoteAddr())
	for _, is := range l.exempt {
		if is(peer) {
			l.exempted.Add(1)
			return l.counted(c, "", spillgate.Decision{})
		}
	}
	key := l.key(peer)
	var slot spillgate.Decision
	if l.open != nil {
		if slot = l.open.Take(key, 1); !slot.Allowed {
			l.refuse(c, peer, TooMany, &l.tooMany)
			return nil
		}
	}
	if l.accepts != nil && !l.accepts.Allow(key) {
		l.giveBack(key, slot)
		l.refuse(c, peer, TooFast, &l.tooFast)
		return nil
	}
	return l.counted(c, key, slot)
}

// peerOf returns the peer's address in normal form, the zero Addr if it has
// none.
func peerOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return clientip.Normal(tcp.AddrPort().Addr())
	}
	if a == nil {
		return netip.Addr{}
	}
	addr, _ := clientip.Parse(a.String()) // the zero Addr if it is none
	return addr
}

// key returns what is counted together: those without an address, as on a unix
// socket, are one peer.
func (l *Listener) key(peer netip.Addr) string {
	if !peer.IsValid() {
		return "unix"
	}
	var room [64]byte
	return string(clientip.Group(peer, 0, l.bits).AppendTo(room[:0]))
}

func (l *Listener) refuse(c net.Conn, peer netip.Addr, why Reason, count *atomic.Int64) {
	count.Add(1)
	if l.reset {
		if tcp, ok := c.(interface{ SetLinger(int) error }); ok {
			_ = tcp.SetLinger(0) // it is closed all the same
		}
	}
	_ = c.Close() // nobody is left to hear of an error
	if l.onRefuse != nil {
		l.onRefuse(peer, why)
	}
}

func (l *Listener) giveBack(key string, slot spillgate.Decision) {
	if slot.Slot != 0 {
		l.open.GiveBack(key, slot)
	}
}

// counted counts c as open until it is closed.
func (l *Listener) counted(c net.Conn, key string, slot spillgate.Decision) net.Conn {
	l.accepted.Add(1)
	l.now.Add(1)
	if tcp, ok := c.(*net.TCPConn); ok {
		return &tcpConn{tcp, end{listener: l, key: key, slot: slot}}
	}
	return &conn{c, end{listener: l, key: key, slot: slot}}
}

// An end is what is to be done when a connection ends, once.
type end struct {
	once     sync.Once
	listener *Listener
	key      string
	slot     spillgate.Decision
}

func (e *end) reached() {
	e.once.Do(func() {
		e.listener.now.Add(-1)
		e.listener.giveBack(e.key, e.slot)
	})
}

// A conn frees its slot when it is closed.
type conn struct {
	net.Conn
	end end
}

// Close closes the connection and frees its slot.
func (c *conn) Close() error {
	defer c.end.reached()
	return c.Conn.Close()
}

// A tcpConn is a conn with all that a *net.TCPConn can besides: sendfile, to
// close one way, SetKeepAlive.
type tcpConn struct {
	*net.TCPConn
	end end
}

// Close closes the connection and frees its slot.
func (c *tcpConn) Close() error {
	defer c.end.reached()
	return c.TCPConn.Close()
}
