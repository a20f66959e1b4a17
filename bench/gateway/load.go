package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/spillgate/spillgate/bench/internal/server"
)

// startNginx starts an nginx that answers everything with a few bytes.
func startNginx(dir string) (*server.Server, error) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			return nil, errors.New("nginx is not installed; `make needs` installs it")
		}
	}
	addr, err := server.FreeAddr()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off; master_process off; worker_processes 1; pid %[1]s/nginx.pid;
events { worker_connections 2048; }
http {
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  server { listen %[2]s; default_type text/plain; location / { return 200 "hello from behind\n"; } }
}
`, dir, addr)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	return server.StartAt(addr, program, "-p", dir, "-c", config, "-e", "stderr")
}

var (
	requestsLine = regexp.MustCompile(`(\d+) requests in`)
	otherLine    = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
	socketLine   = regexp.MustCompile(`Socket errors: .*`)
)

// load asks s as fast as it can for some seconds, and returns the processor
// time that it took a request, in µs.
func load(s *server.Server, seconds int, refused bool) (float64, error) {
	program, err := exec.LookPath("wrk")
	if err != nil {
		return 0, errors.New("wrk is not installed; `make needs` installs it")
	}
	before, err := s.CPU()
	if err != nil {
		return 0, err
	}
	out, err := exec.Command(program, "-t1", "-c64", fmt.Sprintf("-d%ds", seconds), "http://"+s.Addr+"/page").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	after, err := s.CPU()
	if err != nil {
		return 0, err
	}
	n, others := number(requestsLine, out), number(otherLine, out)
	if line := socketLine.Find(out); line != nil {
		return 0, fmt.Errorf("wrk: %s", line)
	}
	if n == 0 || !refused && others > 0 || refused && others < n-1 {
		return 0, fmt.Errorf("%.0f requests, %.0f of them refused:\n%s", n, others, out)
	}
	return (after - before).Seconds() * 1e6 / n, nil
}

func number(line *regexp.Regexp, in []byte) float64 {
	m := line.FindSubmatch(in)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseFloat(string(m[1]), 64) // digits
	return n
}
