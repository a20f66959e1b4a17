package redistest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Proxy stands in front of a server and spoils what goes through it. The
// zero fields pass everything on.
type Proxy struct {
	// Addr is the loopback address that it listens on.
	Addr string
	// Swallow drops what the server says: it is asked, and never heard.
	Swallow atomic.Bool
	// LoseNext ends the connection on which the server says something next, unheard.
	// All others, also those that follow, are left alone: whoever asks again is heard.
	LoseNext atomic.Bool
	// Deaf drops what the client says.
	Deaf atomic.Bool
	// CutAfter above 0 ends a connection after so many bytes of the server's.
	CutAfter atomic.Int64
	// Delay, in nanoseconds, is how long all that the server says takes longer.
	Delay atomic.Int64

	ln     net.Listener
	to     string
	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
	wg     sync.WaitGroup
}

// NewProxy starts a proxy in front of an address, until the test ends.
func NewProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal("redistest:", err)
	}
	p := &Proxy{Addr: ln.Addr().String(), ln: ln, to: to, conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		ln.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// Cut ends all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", p.to)
		if err != nil {
			c.Close()
			continue
		}
		p.mu.Lock()
		if p.closed {
			c.Close()
			s.Close()
		}
		p.conns[c], p.conns[s] = true, true
		p.mu.Unlock()
		p.wg.Go(func() {
			p.copy(s, c, func(b []byte) ([]byte, bool) {
				if p.Deaf.Load() {
					return nil, true
				}
				return b, true
			})
		})
		p.wg.Go(func() {
			said := int64(0)
			p.copy(c, s, func(b []byte) ([]byte, bool) {
				if d := p.Delay.Load(); d > 0 {
					<-time.After(time.Duration(d))
				}
				if p.Swallow.Load() {
					return nil, true
				}
				if p.LoseNext.CompareAndSwap(true, false) {
					return nil, false
				}
				if cut := p.CutAfter.Load(); cut > 0 {
					if said+int64(len(b)) >= cut {
						return b[:max(0, cut-said)], false
					}
				}
				said += int64(len(b))
				return b, true
			})
		})
	}
}

// copy passes on what change leaves of each piece, until it says no.
func (p *Proxy) copy(to, from net.Conn, change func([]byte) ([]byte, bool)) {
	defer func() {
		to.Close()
		from.Close()
		p.mu.Lock()
		delete(p.conns, to)
		delete(p.conns, from)
		p.mu.Unlock()
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			out, more := change(b[:n])
			if _, err := to.Write(out); err != nil || !more {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
