package httplimit_test

import (
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/httplimit"
)

// A refusal is told in the protocol of the call, by its Content-Type; to all
// others as a problem.
func TestGRPCIsToldApart(t *testing.T) {
	deny := rule(t, "closed", "")
	deny.Deny = true
	h := httplimit.Policy(engine(t, deny))(trivial)
	for _, c := range []struct {
		method, kind string
		header, body bool // has the status
		text         bool // in base64
	}{
		{"POST", "application/grpc", true, false, false},
		{"POST", "application/grpc+proto", true, false, false},
		{"POST", "Application/GRPC+json", true, false, false},
		{"POST", "application/grpc; charset=utf-8", true, false, false},
		{"POST", "application/grpc+" + strings.Repeat("x", 99), true, false, false},
		{"POST", "application/grpc-web", false, true, false},
		{"POST", "application/grpc-web+proto", false, true, false},
		{"POST", "application/grpc-web-text", false, true, true},
		{"POST", "application/grpc-web-text+proto", false, true, true},
		{"POST", "application/grpc-web+" + strings.Repeat("x", 99), false, true, false},
		{"GET", "application/grpc", false, false, false},
		{"POST", "application/grpcx", false, false, false},
		{"POST", "application/grpc-webby", false, false, false},
		{"POST", "application/json", false, false, false},
		{"POST", "", false, false, false},
	} {
		r := httptest.NewRequest(c.method, "/shop.Cart/Add", nil)
		if c.kind != "" {
			r.Header.Set("Content-Type", c.kind)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		resp, body := w.Result(), w.Body.String()
		kind, status := resp.Header.Get("Content-Type"), resp.Header.Get("Grpc-Status")
		if !c.header && !c.body {
			if resp.StatusCode != 403 || kind != "application/problem+json" || status != "" {
				t.Errorf("%s %q: %d %v", c.method, c.kind, resp.StatusCode, resp.Header)
			}
			continue
		}
		want, message := c.kind, `rule "closed" does not admit this call; waiting does not help`
		if len(want) > 64 {
			want, _, _ = strings.Cut(want, "+")
		}
		if resp.StatusCode != 200 || kind != want || len(resp.Header.Get(httplimit.RefusalHeader)) != 16 {
			t.Errorf("%q: %d %v", c.kind, resp.StatusCode, resp.Header)
		}
		if c.header {
			if status != "7" || resp.Header.Get("Grpc-Message") != message || resp.Header.Get("Grpc-Status-Details-Bin") == "" || body != "" {
				t.Errorf("%q: %v %q", c.kind, resp.Header, body)
			}
			continue
		}
		if c.text {
			b, err := base64.StdEncoding.DecodeString(body)
			if err != nil {
				t.Fatal(err)
			}
			body = string(b)
		}
		if len(body) < 5 || body[0] != 0x80 || int(binary.BigEndian.Uint32([]byte(body[1:]))) != len(body)-5 || status != "" ||
			!strings.HasPrefix(body[5:], "grpc-status: 7\r\ngrpc-message: "+message+"\r\ngrpc-status-details-bin: ") || !strings.HasSuffix(body, "\r\n") {
			t.Errorf("%q: %v %q", c.kind, resp.Header, body)
		}
	}
}

// A message may hold anything, and a handler's length and body are not left.
func TestAnswerGRPC(t *testing.T) {
	r := httptest.NewRequest("POST", "/shop.Cart/Add", nil)
	if w := httptest.NewRecorder(); httplimit.AnswerGRPC(w, r, 14, "down") || w.Body.Len() > 0 || len(w.Header()) > 0 {
		t.Errorf("a request that is no call: %v", w.Header())
	}
	r.Header.Set("Content-Type", "application/grpc")
	w := httptest.NewRecorder()
	w.Header().Set("Content-Length", "7")
	if !httplimit.AnswerGRPC(w, r, 14, "100 % \"ü\"\n") {
		t.Fatal("a call is none")
	}
	if got := w.Result(); got.StatusCode != http.StatusOK || got.Header.Get("Grpc-Status") != "14" ||
		got.Header.Get("Grpc-Message") != `100 %25 "%C3%BC"%0A` || got.Header["Grpc-Status-Details-Bin"] != nil || got.Header["Content-Length"] != nil {
		t.Errorf("%d %v", got.StatusCode, got.Header)
	}
}
