package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A server is a process that this one started.
type server struct {
	cmd     *exec.Cmd
	address string
	ended   chan struct{}
}

func (s *server) stop() {
	if s != nil {
		_ = s.cmd.Process.Kill() // it has nothing to lose
		<-s.ended
	}
}

func launch(cmd *exec.Cmd) (*server, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		_ = cmd.Wait() // a signal ends it
	}()
	return s, nil
}

var serves = regexp.MustCompile(`http://(127\.0\.0\.1:\d+) `)

// start starts a server that says on its first line where it serves.
func start(command []string) (*server, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout = in
	s, err := launch(cmd)
	in.Close()
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	m := serves.FindStringSubmatch(line)
	if m == nil {
		s.stop()
		return nil, errors.Join(fmt.Errorf("says %q, not where it serves", line), err)
	}
	s.address = m[1]
	return s, nil
}

// startNginx starts an nginx that answers everything with a few bytes.
func startNginx(dir string) (*server, error) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			return nil, errors.New("nginx is not installed; `make needs` installs it")
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := ln.Addr().String()
	ln.Close() // another program may take it before nginx does; then the run fails and says so
	config := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`daemon off; master_process off; worker_processes 1; pid %[1]s/nginx.pid;
events { worker_connections 2048; }
http {
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  server { listen %[2]s; default_type text/plain; location / { return 200 "hello from behind\n"; } }
}
`, dir, address)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "-p", dir, "-c", config, "-e", "stderr")
	cmd.Stderr = os.Stderr
	s, err := launch(cmd)
	if err != nil {
		return nil, fmt.Errorf("nginx: %w", err)
	}
	s.address = address
	for range 1000 {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return s, nil
		}
		select {
		case <-s.ended:
			return nil, fmt.Errorf("nginx ended at its start")
		case <-time.After(5 * time.Millisecond):
		}
	}
	s.stop()
	return nil, fmt.Errorf("nginx does not answer on %s", address)
}

var (
	requestsLine = regexp.MustCompile(`(\d+) requests in`)
	otherLine    = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
	socketLine   = regexp.MustCompile(`Socket errors: .*`)
)

// load asks s as fast as it can for some seconds, and returns the processor
// time that it took a request, in µs.
func (s *server) load(seconds int, refused bool) (float64, error) {
	program, err := exec.LookPath("wrk")
	if err != nil {
		return 0, errors.New("wrk is not installed; `make needs` installs it")
	}
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	out, err := exec.Command(program, "-t1", "-c64", fmt.Sprintf("-d%ds", seconds), "http://"+s.address+"/page").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	after, err := s.cpu()
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

// tick is the unit of /proc/PID/stat on Linux: USER_HZ is 100 on every machine
// that Go runs on.
const tick = 10 * time.Millisecond

// cpu returns the processor time that the process has used.
func (s *server) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// What follows the name, which is in parentheses: user time is the 12th
	// field from there, system time the 13th (proc(5)).
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("can't read %q", text)
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}
