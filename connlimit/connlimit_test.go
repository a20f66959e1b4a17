package connlimit_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/connlimit"
)

// A queue is a listener without a network.
type queue struct {
	arrivals chan any // net.Conn or error
	once     sync.Once
	closed   chan struct{}
}

func newQueue(arrivals ...any) *queue {
	q := &queue{arrivals: make(chan any, len(arrivals)), closed: make(chan struct{})}
	for _, a := range arrivals {
		q.arrivals <- a
	}
	return q
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case a := <-q.arrivals:
		if err, bad := a.(error); bad {
			return nil, err
		}
		return a.(net.Conn), nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

func (q *queue) Addr() net.Addr { return &net.TCPAddr{} }

// A wire is a connection from somewhere.
type wire struct {
	net.Conn // nil
	from     net.Addr
	linger   int
	closed   int
}

func (w *wire) RemoteAddr() net.Addr { return w.from }
func (w *wire) Close() error         { w.closed++; return nil }
func (w *wire) SetLinger(s int) error {
	w.linger = s
	return nil
}

func from(addr string) *wire {
	return &wire{from: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr)), linger: -1}
}

// accept takes all that is let pass.
func accept(t *testing.T, l *connlimit.Listener, q *queue) (conns []net.Conn) {
	t.Helper()
	for len(q.arrivals) > 0 {
		done := make(chan net.Conn, 1)
		go func() {
			c, err := l.Accept()
			if err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			done <- c
		}()
		synctest.Wait()
		select {
		case c := <-done:
			conns = append(conns, c)
		default:
			q.arrivals <- from("255.255.255.255:1") // a stopper
			if c := <-done; c != nil {
				c.Close()
			}
		}
	}
	return conns
}

func TestAcceptsByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		floods := []any{}
		for _, addr := range []string{"192.0.2.1:1", "[::ffff:192.0.2.1]:2", "[64:ff9b::c000:201]:3", "192.0.2.2:1", "[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3%eth0]:1", "[2001:db8:0:1::1]:1"} {
			floods = append(floods, from(addr))
		}
		q := newQueue(floods...)
		var refused []netip.Addr
		l := connlimit.New(q, connlimit.Accepts(spillgate.Must("1/s burst 2")), connlimit.Reset(),
			connlimit.OnRefuse(func(a netip.Addr, why connlimit.Reason) {
				if why != connlimit.TooFast {
					t.Errorf("%s: %s", a, why)
				}
				refused = append(refused, a)
			}))
		if n := len(accept(t, l, q)); n != 6 {
			t.Errorf("%d passed, want 6: two an address or /64, one of each other", n)
		}
		if len(refused) != 2 || refused[0] != netip.MustParseAddr("192.0.2.1") || refused[1] != netip.MustParseAddr("2001:db8::3") {
			t.Errorf("refused %v", refused)
		}
		for i, f := range floods {
			if w := f.(*wire); (i == 2 || i == 6) != (w.closed == 1) || (w.closed == 1) != (w.linger == 0) {
				t.Errorf("connection %d: closed %d times, linger %d", i, w.closed, w.linger)
			}
		}
		time.Sleep(time.Second)
		q.arrivals <- from("192.0.2.1:9")
		if len(accept(t, l, q)) != 1 {
			t.Error("refused a second later")
		}
		if s := l.Stats(); s != (connlimit.Stats{Accepted: 7, TooFast: 2, Open: 7}) {
			t.Errorf("%+v", s)
		}
	})
}

func TestOpenIsFreedByCloseAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(from("192.0.2.1:1"), from("192.0.2.1:2"), from("192.0.2.1:3"), from("192.0.2.2:1"))
		l := connlimit.New(q, connlimit.Open(2), connlimit.Accepts(spillgate.Must("100/s burst 4")))
		conns := accept(t, l, q)
		if len(conns) != 3 {
			t.Fatalf("%d passed, want 3", len(conns))
		}
		time.Sleep(300 * 24 * time.Hour)
		q.arrivals <- from("192.0.2.1:4")
		if n := len(accept(t, l, q)); n != 0 {
			t.Error("a connection that is old was forgotten")
		}
		for range 3 { // frees one
			conns[0].Close()
		}
		q.arrivals <- from("192.0.2.1:5")
		q.arrivals <- from("192.0.2.1:6")
		if n := len(accept(t, l, q)); n != 1 {
			t.Errorf("%d passed, want 1", n)
		}
		if s := l.Stats(); s.TooMany != 3 || s.Open != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// What one limit refuses costs the other nothing.
func TestRefusedCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(from("192.0.2.1:1"), from("192.0.2.1:2"), from("192.0.2.1:3"))
		l := connlimit.New(q, connlimit.Open(2), connlimit.Accepts(spillgate.Must("1/h burst 1")))
		conns := accept(t, l, q) // one, then two too fast, whose slots are free again
		if s := l.Stats(); len(conns) != 1 || s.TooFast != 2 || s.TooMany != 0 {
			t.Fatalf("%d passed, %+v", len(conns), s)
		}
		time.Sleep(time.Hour)
		q.arrivals <- from("192.0.2.1:4")
		conns = append(conns, accept(t, l, q)...)
		q.arrivals <- from("192.0.2.1:5") // too many: its hour is not spent
		accept(t, l, q)
		time.Sleep(time.Hour)
		conns[0].Close()
		q.arrivals <- from("192.0.2.1:6")
		if n := len(accept(t, l, q)); n != 1 {
			t.Error("refused")
		}
	})
}

func TestExempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nets, err := clientip.ParseNetworks("10.0.0.0/8")
		if err != nil {
			t.Fatal(err)
		}
		q := newQueue(from("[::ffff:10.1.2.3]:1"), from("10.1.2.3:2"), from("192.0.2.1:1"), from("192.0.2.1:2"),
			&wire{from: &net.UnixAddr{Name: "@", Net: "unix"}}, &wire{from: &net.UnixAddr{Net: "unix"}}, &wire{})
		l := connlimit.New(q, connlimit.Open(1), connlimit.Exempt(nets.Contains))
		if conns := accept(t, l, q); len(conns) != 4 { // both of 10/8, one of the others, one without an address
			t.Errorf("%d passed, want 4", len(conns))
		}
		if s := l.Stats(); s.Exempt != 2 || s.TooMany != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// temporary is what net says when there are no file descriptors left.
var temporary = &net.OpError{Op: "accept", Err: syscall.EMFILE}

func TestFaultsThatPassAreWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(temporary, temporary, temporary, from("192.0.2.1:1"))
		l := connlimit.New(q, connlimit.Open(1))
		start := time.Now()
		if c, err := l.Accept(); err != nil || c == nil || time.Since(start) != 35*time.Millisecond {
			t.Errorf("%v, %v after %s", c, err, time.Since(start))
		}
		if n := l.Stats().Faults; n != 3 {
			t.Errorf("%d faults", n)
		}
		// Close ends the wait.
		for range 30 {
			q = newQueue(temporary)
			l = connlimit.New(q)
			go l.Close()
			if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("error %v", err)
			}
		}
		// Others are the caller's.
		broken := errors.New("broken")
		if _, err := connlimit.New(newQueue(broken)).Accept(); err != broken {
			t.Errorf("error %v", err)
		}
	})
}

// Addresses without number take no memory without bound.
func TestMemoryIsBounded(t *testing.T) {
	lim, err := spillgate.New(spillgate.Limit{Rate: 1, Period: time.Minute, Burst: 1}, spillgate.MaxKeys(100))
	if err != nil {
		t.Fatal(err)
	}
	q := &queue{arrivals: make(chan any, 1), closed: make(chan struct{})}
	l := connlimit.New(q, connlimit.Accepts(lim))
	go func() {
		for i := range 5000 {
			q.arrivals <- from(netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 1).String())
		}
		q.arrivals <- io.EOF
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			break
		}
		c.Close()
	}
	if s := l.Stats(); s.Accepted < 100 || s.Accepted > 110 || s.Open != 0 || lim.Stats().Live > 100 {
		t.Errorf("%+v, %d keys", s, lim.Stats().Live)
	}
}
