// Package nginxtest starts a real nginx for a test, as the upstream that the
// gateway stands in front of.
package nginxtest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A Server is an nginx that runs until its test ends.
type Server struct {
	// Addr is the loopback address that it listens on.
	Addr string
	// Root is the folder of the files that it serves; the test may write there.
	Root string
	// Process is nginx's process id.
	Process int
}

// Start runs nginx with the directives of one server block, such as
// "location / { return 200 ok; }", and waits until it answers. Anything it
// writes goes to the test's temporary folder. nginx is a Debian package:
// `make needs` installs it.
func Start(t testing.TB, directives string) *Server {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			t.Fatal("nginxtest: nginx is not installed; `make needs` at the top of the repository installs it")
		}
	}
	dir := t.TempDir()
	s := &Server{Root: filepath.Join(dir, "root")}
	for _, sub := range []string{s.Root, filepath.Join(dir, "logs")} {
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal("nginxtest:", err)
		}
	}
	// Between finding a free port and nginx's taking it another program may
	// take it first. nginx says so at once, and the next port is tried.
	for range 5 {
		s.Addr = freeAddr(t)
		if s.run(t, program, dir, directives) {
			return s
		}
	}
	t.Fatal("nginxtest: nginx found no free port in 5 tries")
	return nil
}

// run starts nginx on s.Addr and reports whether it answers there.
func (s *Server) run(t testing.TB, program, dir, directives string) bool {
	t.Helper()
	config := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(config, []byte(s.config(dir, directives)), 0o644); err != nil {
		t.Fatal("nginxtest:", err)
	}
	var said bytes.Buffer
	cmd := exec.Command(program, "-p", dir, "-c", config, "-e", "stderr")
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal("nginxtest:", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // a signal ends it
	}()
	deadline := time.After(10 * time.Second)
	for {
		if conn, err := net.Dial("tcp", s.Addr); err == nil {
			conn.Close()
			break
		}
		select {
		case <-ended:
			if bytes.Contains(said.Bytes(), []byte("Address already in use")) {
				return false
			}
			t.Fatalf("nginxtest: nginx ended at its start:\n%s", said.Bytes())
		case <-deadline:
			_ = cmd.Process.Kill()
			<-ended
			t.Fatalf("nginxtest: nginx does not answer on %s:\n%s", s.Addr, said.Bytes())
		case <-time.After(5 * time.Millisecond):
		}
	}
	s.Process = cmd.Process.Pid
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	return true
}

// config is one process without a master, so that there is one to stop.
func (s *Server) config(dir, directives string) string {
	return fmt.Sprintf(`daemon off;
master_process off;
pid %[1]s/nginx.pid;
worker_rlimit_nofile 8192;
events { worker_connections 4096; }
http {
	access_log off;
	types { text/plain txt; text/html html; application/json json; }
	default_type application/octet-stream;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	client_max_body_size 0;
	keepalive_requests 1000000;
	server {
		listen %[2]s backlog=4096;
		root %[3]s;
		%[4]s
	}
}
`, dir, s.Addr, s.Root, directives)
}

func freeAddr(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal("nginxtest:", err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
