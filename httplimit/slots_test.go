package httplimit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

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
// after, and its bytes count.
func TestTakenOverConnectionHoldsItsSlot(t *testing.T) {
	for _, bare := range []bool{false, true} {
		for _, stays := range []bool{false, true} {
			t.Run(fmt.Sprintf("bare %v, handler stays %v", bare, stays), func(t *testing.T) {
				e := engine(t, rule(t, "slots", "1 at once"), counting(t, policy.Bytes, "1/h burst 1000"))
				ended := make(chan struct{})
				returned := make(chan struct{})
				h := func(w http.ResponseWriter, r *http.Request) {
					conn, rw, err := w.(http.Hijacker).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					if _, ok := conn.(interface{ CloseWrite() error }); !ok {
						t.Error("can't be closed one way")
					}
					fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
					rw.Flush()
					echo := func() {
						defer close(ended)
						defer conn.Close()
						line, _ := rw.ReadString('\n')
						fmt.Fprint(conn, line)
						_, _ = rw.ReadString('\n')
					}
					if stays {
						echo()
					} else {
						go echo()
					}
				}
				var opts []httplimit.Option
				if bare {
					opts = append(opts, httplimit.NoVerdict())
				}
				s := served(t, e, func(w http.ResponseWriter, r *http.Request) {
					defer close(returned)
					h(w, r)
				}, opts...)
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
				if !stays {
					<-returned
				}
				// Others use what memory the decision used.
				for range 5 {
					if status, _ := post(t, s, strings.NewReader("x")); status != 429 {
						t.Errorf("beside it: %d", status)
					}
				}
				if n := used(e, "slots"); n != 1 {
					t.Errorf("%d slots are taken", n)
				}
				conn.Close()
				<-ended
				become(t, e, "slots", 0)
				become(t, e, "bytes", int64(len("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nping\n")))
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
