package gateway_test

import (
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/gateway"
)

// The curl of this machine hears an early answer to a large upload over HTTP/2,
// whoever gives it. An old one loses the answer if the stream is reset in the same
// instant; on a busy machine a tenth of a second may be one, so it has some tries.
func TestCurlHearsEarlyAnswersOverHTTP2(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatal("curl is not installed; `make needs` installs it:", err)
	}
	if version, err := exec.CommandContext(t.Context(), curl, "--version").Output(); err != nil || !strings.Contains(string(version), "HTTP2") {
		t.Skip("the curl of this machine does not speak HTTP/2")
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	up := upstream(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(http.StatusConflict)
		early(rw, r)
	})
	for name, c := range map[string]struct {
		change func(*gateway.Config)
		scheme string
		flags  []string
	}{
		"TLS": {overTLS(t), "https://", []string{"--insecure", "--http2"}},
		"h2c": {overH2C, "http://", []string{"--http2-prior-knowledge"}},
	} {
		refusing := serve(t, up, compile(t, closed(t)), c.change)
		for want, target := range map[string]string{
			"403 2 0": refusing.addr,
			"409 2 0": open(t, up, c.change).addr,
			"502 2 0": open(t, gone.Addr().String(), c.change).addr,
		} {
			var all []string
			for len(all) < 20 && (len(all) == 0 || all[len(all)-1] != want) {
				cmd := exec.CommandContext(t.Context(), curl, append(c.flags, "--silent", "--max-time", "20", "--output", "/dev/null",
					"--write-out", "%{http_code} %{http_version} %{exitcode}", "--data-binary", "@-", c.scheme+target+"/")...)
				cmd.Stdin = strings.NewReader(strings.Repeat("x", 3<<20))
				out, _ := cmd.Output() // a failure is in what it writes
				all = append(all, string(out))
			}
			t.Log(name, all)
			if all[len(all)-1] != want {
				t.Errorf("over %s: %q, want %s", name, all, want)
			}
		}
	}
}
