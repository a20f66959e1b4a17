package httplimit

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

// All bodies that are looked at together take no more than there is room for.
// For what is beyond that the next estimate counts, every request goes on whole,
// and in the end all room is there again.
func TestBodiesThatAreLookedAtShareARoom(t *testing.T) {
	const size, space = 10_000, 50_000
	limit, err := spillgate.ParseLimit("1/s burst 1_000_000")
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile([]policy.Rule{{Name: "tokens", Unit: policy.Tokens, Limit: limit}})
	if err == nil {
		p, err = p.WithUsage([]policy.Usage{{Format: "openai", Output: "max_tokens else 7"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	charged, answer := make(chan int64, 1), make(chan struct{})
	h := Policy(policy.NewEngine(p, spillgate.NewMemory()), Logger(slog.New(slog.NewTextHandler(&log, nil))))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charged <- policy.FromContext(r.Context()).Of("tokens").Decision.Taken
		<-answer
		if b, err := io.ReadAll(r.Body); err != nil || len(b) != size {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	})).(*policed)
	h.room = newRoom(space)
	body := `{"max_tokens":500,"x":"` + strings.Repeat("x", size)
	body = body[:size-2] + `"}`
	const whole, blind = size/4 + 500, size/4 + 7
	ended := make(chan struct{})
	got := map[int64]int{}
	for range 9 {
		go func() {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(body)))
			ended <- struct{}{}
		}()
		got[<-charged]++
		if held := space - h.room.left.Load(); held < 0 || held > space {
			t.Errorf("%d bytes are held", held)
		}
	}
	if got[whole] == 0 || got[blind] == 0 || got[whole]+got[blind] != 9 {
		t.Errorf("charged %v, want some %d and some %d", got, whole, blind)
	}
	close(answer)
	for range 9 {
		<-ended
	}
	if left := h.room.left.Load(); left != space {
		t.Errorf("room for %d bytes is left, want %d", left, space)
	}
	if !strings.Contains(log.String(), "body not looked at") {
		t.Errorf("log: %s", &log)
	}

	// Nor does one take any that nobody reads, or that breaks off.
	h.next = http.NotFoundHandler()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(body)))
	if left := h.room.left.Load(); left != space {
		t.Errorf("after one that was not read: %d", left)
	}
	broken := httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader(body[:5000]), iotest.ErrReader(errors.New("broken"))))
	h.ServeHTTP(httptest.NewRecorder(), broken)
	if left := h.room.left.Load(); left != space {
		t.Errorf("after one that broke off: %d", left)
	}
}
