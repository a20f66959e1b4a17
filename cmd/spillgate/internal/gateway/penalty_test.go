package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
	"github.com/spillgate/spillgate/policy"
)

// Over real HTTP: who is refused three times is blocked, told so, listed, and
// free once somebody says so. Others notice nothing.
func TestPenaltyBlocksAndIsFreed(t *testing.T) {
	limit, err := spillgate.ParseLimit("1/h burst 1")
	if err != nil {
		t.Fatal(err)
	}
	key, err := policy.ParsePart("client.ip")
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile([]policy.Rule{{
		Name: "login", Key: []policy.Part{key}, Limit: limit,
		Penalty: policy.Penalty{After: 3, Within: time.Minute, Block: 2 * time.Hour},
	}})
	if err != nil {
		t.Fatal(err)
	}
	m := spillgate.NewMemory()
	defer m.Close()
	engine := policy.NewEngine(p, m)
	f := serve(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }), p,
		func(c *gateway.Config) { c.Engine = engine })
	get := func(from string) (int, string, string) {
		t.Helper()
		resp, err := visitor(t, from).Get(f.url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header.Get("Retry-After"), string(body)
	}
	const who = "127.0.0.51"
	for i, want := range []int{200, 429, 429, 429, 429} {
		status, retry, body := get(who)
		if status != want {
			t.Fatalf("request %d: status %d, %s", i+1, status, body)
		}
		blocked := i >= 3
		if strings.Contains(body, "abnormal-usage-detected") != blocked || strings.Contains(body, "is blocked (rule login)") != blocked {
			t.Errorf("request %d: %s", i+1, body)
		}
		if blocked && retry != "7200" {
			t.Errorf("request %d: retry after %s", i+1, retry)
		}
	}
	if status, _, _ := get("127.0.0.52"); status != 200 {
		t.Errorf("another client: status %d", status)
	}
	list := engine.Blocked("login", 10)
	if len(list) != 1 || list[0].Key != "client.ip="+who || list[0].Refused != 1 {
		t.Fatalf("blocked: %+v", list)
	}
	if freed, err := engine.Free(t.Context(), "login", list[0].ID); err != nil || !freed {
		t.Fatalf("freed %t, %v", freed, err)
	}
	if status, _, body := get(who); status != 429 || strings.Contains(body, "blocked") || engine.Blocked("login", 10) != nil {
		t.Errorf("freed, and under its limit as before: %d, %s", status, body)
	}
}
