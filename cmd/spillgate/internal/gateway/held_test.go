package gateway_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/policy"
)

// asked is a store that tells of each time it is asked.
type asked struct {
	spillgate.Store
	times chan struct{}
}

func (a asked) Take(ctx context.Context, at time.Time, cs []spillgate.Charge, out []spillgate.Decision) error {
	err := a.Store.Take(ctx, at, cs, out)
	a.times <- struct{}{}
	return err
}

// Those who are held at a stop are told to come again at once: the drain time is
// for those who are served.
func TestStopEndsHolds(t *testing.T) {
	release := make(chan struct{})
	addr := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		_, _ = io.WriteString(w, "finished")
	})
	delay := rule(t, "delay", "1/5min burst 1", []string{"client.ip"})
	delay.Delay = policy.Delay{Most: policy.MaxDelay}
	store := asked{spillgate.NewMemory(), make(chan struct{}, 9)}
	g, err := gateway.New(gateway.Config{
		Engine:   policy.NewEngine(compile(t, delay), store),
		Upstream: &url.URL{Scheme: "http", Host: addr}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(ctx, ln, 10*time.Minute) }()

	target := "http://" + ln.Addr().String()
	ask := func() <-chan reply {
		got := make(chan reply, 1)
		go func() { got <- get(t, visitor(t, "127.0.0.1"), target) }()
		<-store.times
		return got
	}
	served, held := ask(), ask()
	stop()
	if got := <-held; got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "1" || !got.Close {
		t.Errorf("held: %d %v", got.StatusCode, got.Header)
	}
	select {
	case err := <-ended:
		t.Error("serving ended before the request did:", err)
	default:
	}
	close(release)
	if got := <-served; got.StatusCode != http.StatusOK || got.body != "finished" {
		t.Errorf("served: %d %q", got.StatusCode, got.body)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Whom a full line for slots turns away is told when these expire, and not how
// often the line asks for them.
func TestAFullLineForSlotsTellsWhenTheyExpire(t *testing.T) {
	release := make(chan struct{})
	addr := upstream(t, func(http.ResponseWriter, *http.Request) { <-release })
	slots := rule(t, "slots", "1 at once for 5min", []string{"client.ip"})
	slots.Delay = policy.Delay{Most: policy.MaxDelay, Queue: 1}
	store := asked{spillgate.NewMemory(), make(chan struct{}, 1<<10)}
	f := serve(t, addr, compile(t, slots), func(c *gateway.Config) { c.Engine = policy.NewEngine(compile(t, slots), store) })
	ask := func() <-chan reply {
		got := make(chan reply, 1)
		go func() { got <- get(t, visitor(t, "127.0.0.1"), f.url) }()
		return got
	}
	served := ask()
	<-store.times // it has the slot
	held := ask()
	<-store.times
	<-store.times // it stands in line, and asked again
	got := <-ask()
	if wait, err := strconv.Atoi(got.Header.Get("Retry-After")); got.StatusCode != http.StatusTooManyRequests || err != nil || wait < 300 || wait > 600 {
		t.Errorf("%d %v", got.StatusCode, got.Header)
	}
	close(release)
	for _, c := range []<-chan reply{served, held} {
		if got := <-c; got.StatusCode != http.StatusOK {
			t.Errorf("%d %v", got.StatusCode, got.Header)
		}
	}
}
