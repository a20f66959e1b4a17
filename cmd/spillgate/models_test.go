package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// models is an upstream that speaks like OpenAI and like Anthropic.
func models(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.URL.Path == "/v1/messages":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":20,\"cache_read_input_tokens\":1000,\"output_tokens\":1}}}\n\n")
			_ = http.NewResponseController(w).Flush()
			fmt.Fprint(w, "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":50}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
		case strings.Contains(string(body), "broken"):
			http.Error(w, `{"error":{}}`, http.StatusInternalServerError)
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":200,"prompt_tokens_details":{"cached_tokens":50}}}`)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

var tokensLeft = regexp.MustCompile(`"tokens-a-day";r=([0-9]+)`)

// TestModelsPolicy plays with the example of a gateway in front of models.
func TestModelsPolicy(t *testing.T) {
	p := start(t, "../../examples/models.yaml", "--upstream", models(t).URL)
	v := visitor(t, "127.0.0.1")
	call := func(key, path, body string) (status int, left string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "POST", p.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		resp, err := v.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		if m := tokensLeft.FindStringSubmatch(resp.Header.Get("RateLimit")); m != nil {
			left = m[1]
		}
		return resp.StatusCode, left
	}
	// What is left is told before the answer is: with the estimate off, a
	// quarter of the body's bytes and four times max_tokens.
	body := `{"max_tokens":1000,"messages":[]}`
	for _, c := range []struct {
		path, body string
		status     int
		left       int
	}{
		{"/v1/chat/completions", body, 200, 500_000 - 9 - 4000},
		// 50 + 50/10 + 4*200 were used.
		{"/v1/messages", body, 200, 500_000 - 855 - 9 - 4000},
		// 20 + 1000/10 + 4*50.
		{"/v1/chat/completions", body + "broken", 500, 500_000 - 855 - 320 - 10 - 4000},
		// An error was free.
		{"/v1/chat/completions", body, 200, 500_000 - 855 - 320 - 9 - 4000},
	} {
		if status, left := call("ann", c.path, c.body); status != c.status || left != fmt.Sprint(c.left) {
			t.Errorf("%s: %d, %s left; want %d, %d", c.path, status, left, c.status, c.left)
		}
	}
	// More than a minute ever holds is refused, and charged to nobody.
	if status, _ := call("ann", "/v1/chat/completions", `{"max_tokens":6000}`); status != 429 {
		t.Errorf("too much at once: %d", status)
	}
	if status, left := call("ann", "/v1/messages", body); status != 200 || left != fmt.Sprint(500_000-2*855-320-9-4000) {
		t.Errorf("afterwards: %d, %s left", status, left)
	}
	// Another key has tokens of its own.
	if _, left := call("bob", "/v1/messages", body); left != fmt.Sprint(500_000-9-4000) {
		t.Errorf("bob has %s left", left)
	}
}
