package httplimit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
)

// TestSlotIsHeldToTheLastByte : a slot is taken while an answer is sent, and
// free when its end was seen.
func TestSlotIsHeldToTheLastByte(t *testing.T) {
	e := engine(t, rule(t, "slots", "1 at once"))
	next := make(chan struct{})
	s := served(t, e, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "first ")
		_ = http.NewResponseController(w).Flush()
		<-next
		fmt.Fprint(w, "last")
	})
	for range 3 {
		answer, err := s.Client().Get(s.URL)
		if err != nil || answer.StatusCode != 200 {
			t.Fatal(answer, err)
		}
		if _, err := io.ReadFull(answer.Body, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		if status, _ := post(t, s, nil); status != 429 {
			t.Errorf("beside it: %d", status)
		}
		next <- struct{}{}
		if rest, err := io.ReadAll(answer.Body); string(rest) != "last" || err != nil {
			t.Fatal(string(rest), err)
		}
		answer.Body.Close()
	}
}

func TestSlotIsFreeAfterAPanicAndWhenTheClientLeaves(t *testing.T) {
	e := engine(t, rule(t, "slots", "1 at once"))
	s := served(t, e, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		if r.Method == "POST" {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
	})
	for range 3 {
		if answer, err := s.Client().Post(s.URL, "", nil); err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
		become(t, e, "slots", 0)
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.Client().Do(r)
		if err != nil || answer.StatusCode != 200 {
			t.Fatal(answer, err)
		}
		become(t, e, "slots", 1)
		cancel()
		answer.Body.Close()
		become(t, e, "slots", 0)
	}
}

// TestTakenOverConnectionHoldsItsSlot : a connection that a handler took over
// holds its slot until it is closed, whether the handler returns before or
// after, and its bytes count. A handler that panics leaves nothing held.
func TestTakenOverConnectionHoldsItsSlot(t *testing.T) {
	const upgraded = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
	for _, way := range []string{"policy", "policy, no verdict", "limiter"} {
		for _, handler := range []string{"stays", "returns", "panics"} {
			t.Run(way+", handler "+handler, func(t *testing.T) {
				slots := rule(t, "slots", "1 at once")
				e := engine(t, slots, counting(t, policy.Bytes, "1/h burst 1000"))
				wrap := httplimit.Policy(e)
				taken := func() int64 { return used(e, "slots") }
				switch way {
				case "policy, no verdict":
					wrap = httplimit.Policy(e, httplimit.NoVerdict())
				case "limiter":
					lim, err := spillgate.New(slots.Limit)
					if err != nil {
						t.Fatal(err)
					}
					defer lim.Close()
					wrap = httplimit.New(lim)
					taken = func() int64 { return 1 - lim.Peek("client.ip:127.0.0.1").Remaining }
				}
				ended, returned := make(chan struct{}), make(chan struct{})
				s := httptest.NewUnstartedServer(wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(returned)
					conn, rw, err := w.(http.Hijacker).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					if _, ok := conn.(interface{ CloseWrite() error }); !ok {
						t.Error("can't be closed one way")
					}
					fmt.Fprint(rw, upgraded)
					rw.Flush()
					echo := func() {
						defer close(ended)
						defer conn.Close()
						line, _ := rw.ReadString('\n')
						fmt.Fprint(conn, line)
						_, _ = rw.ReadString('\n')
					}
					switch handler {
					case "stays":
						echo()
					case "returns":
						go echo()
					case "panics":
						go echo()
						panic(http.ErrAbortHandler)
					}
				})))
				s.Start()
				defer s.Close()
				conn, err := net.Dial("tcp", s.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nping\n")
				in := bufio.NewReader(conn)
				if answer, err := http.ReadResponse(in, nil); err != nil || answer.StatusCode != 101 {
					t.Fatal(answer, err)
				}
				if line, _ := in.ReadString('\n'); line != "ping\n" {
					t.Errorf("%q", line)
				}
				if handler != "stays" {
					<-returned
				}
				if handler == "panics" {
					for end := time.Now().Add(10 * time.Second); taken() != 0 && time.Now().Before(end); runtime.Gosched() {
					}
				} else {
					for range 5 { // others use what memory the decision used
						if status, _ := post(t, s, strings.NewReader("x")); status != 429 {
							t.Errorf("beside it: %d", status)
						}
					}
					if n := taken(); n != 1 {
						t.Errorf("%d slots are taken", n)
					}
				}
				conn.Close()
				<-ended
				for end := time.Now().Add(10 * time.Second); taken() != 0; runtime.Gosched() {
					if time.Now().After(end) {
						t.Fatal("the slot is not free")
					}
				}
				if way != "limiter" && handler != "panics" {
					become(t, e, "bytes", int64(len(upgraded+"ping\n")))
				}
			})
		}
	}
}

// TestSlotOfADeadHolder : a slot whose holder never comes back is free after
// the time that the limit gives it.
func TestSlotOfADeadHolder(t *testing.T) {
	e := engine(t, rule(t, "slots", "1 at once for 50ms"))
	next := make(chan struct{})
	s := served(t, e, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		if r.Method == "GET" {
			<-next // dead, or as good as dead
		}
	})
	answer, err := s.Client().Get(s.URL)
	if err != nil || answer.StatusCode != 200 {
		t.Fatal(answer, err)
	}
	become(t, e, "slots", 0)
	if status, _ := post(t, s, nil); status != 200 {
		t.Error(status)
	}
	// When the dead comes back, nobody else's slot is freed.
	close(next)
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	if n := used(e, "slots"); n != 0 {
		t.Errorf("%d used", n)
	}
}
