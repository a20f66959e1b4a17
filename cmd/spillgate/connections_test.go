package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dial opens a connection from a loopback address and asks for a page; cut
// reports that the server reset it.
func dial(t *testing.T, from, url, more string) (c net.Conn, status string, cut bool) {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0)), Timeout: 10 * time.Second}
	c, err := d.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if errors.Is(err, syscall.ECONNRESET) {
		return nil, "", true
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	// A reset is told once: to the write, or to the read.
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n"+more+"\r\n")
	buf := make([]byte, 12)
	if err == nil {
		if _, err = io.ReadFull(c, buf); err == nil {
			return c, string(buf), false
		}
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Fatalf("neither answered nor reset: %v", err)
	}
	return c, "", true
}

// The gateway resets connections beyond the limits of one peer, and serves
// others, and the proxies that it trusts.
func TestServeLimitsConnections(t *testing.T) {
	p := start(t, `
server:
  client_ip: {trusted: 127.0.0.9, from: x-forwarded-for}
  connections: {open: 3, accepts: 1/h burst 5, exempt: 127.0.0.8}
rules:
  - {name: everybody, limit: 1000/s, key: client.ip}
`, "--demo")
	var held []net.Conn
	for i := range 5 {
		c, status, cut := dial(t, "127.0.0.2", p.url, "")
		if cut != (i >= 3) || !cut && status != "HTTP/1.1 200" {
			t.Errorf("connection %d: %q, cut: %t", i, status, cut)
		}
		held = append(held, c)
	}
	for i := range 10 {
		for _, exempt := range []string{"127.0.0.8", "127.0.0.9"} {
			if _, _, cut := dial(t, exempt, p.url, "X-Forwarded-For: 192.0.2.1\r\n"); cut {
				t.Errorf("connection %d of %s was cut", i, exempt)
			}
		}
	}
	if _, _, cut := dial(t, "127.0.0.3", p.url, ""); cut {
		t.Error("another peer was cut")
	}
	// A closed connection makes room, while the rate allows: two are left. The
	// server hears of the end a little later.
	for range 2 {
		held[0].Close()
		held = held[1:]
		deadline := time.After(10 * time.Second)
		for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
			if _, _, cut := dial(t, "127.0.0.2", p.url, ""); !cut {
				break
			}
			select {
			case <-deadline:
				t.Fatal("a closed connection makes no room")
			default:
			}
		}
	}
	held[0].Close()
	if _, _, cut := dial(t, "127.0.0.2", p.url, ""); !cut {
		t.Error("the rate was not kept")
	}
	if resp, err := http.Get(p.url); err != nil { // from 127.0.0.1
		t.Error(err)
	} else {
		resp.Body.Close()
	}
}
