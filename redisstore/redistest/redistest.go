// Package redistest starts real Redis servers for a test, alone, with a replica
// and Sentinel, or as a cluster, and a proxy that spoils what goes through it.
package redistest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Server is a server that runs until its test ends. It keeps nothing on disk.
type Server struct {
	// Addr is the loopback address that it listens on.
	Addr string

	t       testing.TB
	program string
	dir     string
	args    []string
	sentry  bool

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start runs a redis-server with options such as "--maxmemory", "1mb", and
// waits until it answers. The server is a Debian package: `make needs` installs
// it. REDIS_SERVER in the environment names another program, such as a Valkey.
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	s := &Server{t: t, program: program(t), dir: t.TempDir(), args: options}
	s.place()
	t.Cleanup(s.Kill)
	return s
}

func program(t testing.TB) string {
	t.Helper()
	name := os.Getenv("REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("redistest: %s is not installed; `make needs` at the top of the repository installs it", name)
	}
	return path
}

// place finds a free port and starts s there. Between the two another program
// may take the port; then the next one is tried.
func (s *Server) place() {
	s.t.Helper()
	for range 5 {
		s.Addr = freeAddr(s.t)
		if s.run() {
			return
		}
	}
	s.t.Fatal("redistest: no free port in 5 tries")
}

// Run starts s again, where it was, after Kill.
func (s *Server) Run() {
	s.t.Helper()
	if !s.run() {
		s.t.Fatalf("redistest: somebody took %s", s.Addr)
	}
}

// Port returns the port of s.
func (s *Server) Port() int {
	_, port, _ := net.SplitHostPort(s.Addr)
	n, _ := strconv.Atoi(port)
	return n
}

func (s *Server) run() bool {
	s.t.Helper()
	args := append([]string{}, s.args...)
	if s.sentry {
		config := filepath.Join(s.dir, "sentinel.conf")
		if err := os.WriteFile(config, nil, 0o644); err != nil {
			s.t.Fatal("redistest:", err)
		}
		args = append([]string{config, "--sentinel"}, args...)
	} else {
		args = append([]string{"--save", "", "--appendonly", "no"}, args...)
	}
	args = append(args, "--port", strconv.Itoa(s.Port()), "--bind", "127.0.0.1", "-127.0.0.2", "--dir", s.dir, "--daemonize", "no")
	var said bytes.Buffer
	cmd := exec.Command(s.program, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal("redistest:", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // a signal ends it
	}()
	s.mu.Lock()
	s.cmd, s.ended = cmd, ended
	s.mu.Unlock()
	deadline := time.After(10 * time.Second)
	for {
		if conn, err := net.Dial("tcp", s.Addr); err == nil {
			conn.Close()
			return true
		}
		select {
		case <-ended:
			if bytes.Contains(said.Bytes(), []byte("Address already in use")) {
				return false
			}
			s.t.Fatalf("redistest: the server ended at its start:\n%s", said.Bytes())
		case <-deadline:
			s.Kill()
			s.t.Fatalf("redistest: the server does not answer on %s", s.Addr)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (s *Server) process() (*os.Process, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process, s.ended
}

// Kill ends s at once and waits until it is gone.
func (s *Server) Kill() {
	p, ended := s.process()
	_ = p.Kill()
	<-ended
}

// Pause stops s where it is: connections stay, nothing is answered.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Continue lets a paused server go on.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig os.Signal) {
	s.t.Helper()
	p, _ := s.process()
	if err := p.Signal(sig); err != nil {
		s.t.Fatal("redistest:", err)
	}
}

// Client returns a client of s, closed when the test ends.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// Do sends one command and returns the reply.
func (s *Server) Do(words ...any) any {
	s.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	defer c.Close()
	reply, err := c.Do(s.t.Context(), words...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatalf("redistest: %v: %v", words, err)
	}
	return reply
}

func freeAddr(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal("redistest:", err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// until waits until ok is true.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("redistest: still not after a minute: %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// Cluster starts a cluster of n primaries, each with its part of the slots.
func Cluster(t testing.TB, n int) []*Server {
	t.Helper()
	return cluster(t, n, func(int) []string { return nil })
}

// cluster is the same with more options for each server.
func cluster(t testing.TB, n int, options func(i int) []string) []*Server {
	t.Helper()
	all := make([]*Server, n)
	for i := range all {
		all[i] = member(t, options(i)...)
		all[i].Do("cluster", "addslotsrange", i*16384/n, (i+1)*16384/n-1)
		if i > 0 {
			all[i].meet(all[0])
		}
	}
	whole(t, all)
	return all
}

// member starts a server that is to be one of a cluster.
func member(t testing.TB, options ...string) *Server {
	t.Helper()
	_, bus, _ := net.SplitHostPort(freeAddr(t))
	return Start(t, append([]string{"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "1000",
		"--cluster-require-full-coverage", "no", "--cluster-allow-replica-migration", "no"}, options...)...)
}

// meet makes s one of the cluster that other is of.
func (s *Server) meet(other *Server) {
	s.t.Helper()
	s.Do("cluster", "meet", "127.0.0.1", other.Port(), other.args[3])
}

// ReplicaOf starts a replica of a server of a cluster, which takes its place when
// it dies, and waits until it and the others know.
func ReplicaOf(t testing.TB, all []*Server, primary *Server) *Server {
	t.Helper()
	s := member(t, "--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0")
	s.meet(primary)
	id := fmt.Sprint(primary.Do("cluster", "myid"))
	knows := func(s *Server, text string) bool {
		return bytes.Contains([]byte(fmt.Sprint(s.Do("cluster", "nodes"))), []byte(text))
	}
	until(t, "the replica knows the primary", func() bool { return knows(s, id) })
	s.Do("cluster", "replicate", id)
	until(t, "the replica has all", func() bool {
		return bytes.Contains([]byte(fmt.Sprint(primary.Do("info", "replication"))), []byte("state=online"))
	})
	for _, other := range all {
		until(t, "all know the replica", func() bool { return knows(other, "slave "+id) })
	}
	whole(t, append([]*Server{s}, all...))
	return s
}

// whole waits until all servers see a cluster that has all slots.
func whole(t testing.TB, all []*Server) {
	t.Helper()
	for _, s := range all {
		until(t, "the cluster is whole", func() bool {
			info := fmt.Sprint(s.Do("cluster", "info"))
			return bytes.Contains([]byte(info), []byte("cluster_state:ok")) &&
				bytes.Contains([]byte(info), []byte("cluster_slots_assigned:16384"))
		})
	}
}

// A Group is a primary, a replica of it, and a Sentinel that watches them under
// the name "main".
type Group struct {
	Primary, Replica, Sentinel *Server
}

// Replicated starts a group.
func Replicated(t testing.TB) *Group {
	t.Helper()
	g := &Group{Primary: Start(t, "--repl-diskless-sync-delay", "0")}
	g.Replica = Start(t, "--replicaof", "127.0.0.1 "+strconv.Itoa(g.Primary.Port()))
	until(t, "the replica has all", func() bool {
		info := fmt.Sprint(g.Primary.Do("info", "replication"))
		return bytes.Contains([]byte(info), []byte("state=online"))
	})
	g.Sentinel = &Server{t: t, program: program(t), dir: t.TempDir(), sentry: true}
	g.Sentinel.place()
	t.Cleanup(g.Sentinel.Kill)
	g.Sentinel.Do("sentinel", "monitor", "main", "127.0.0.1", g.Primary.Port(), 1)
	g.Sentinel.Do("sentinel", "set", "main", "down-after-milliseconds", "500")
	g.Sentinel.Do("sentinel", "set", "main", "failover-timeout", "2000")
	until(t, "Sentinel knows the replica", func() bool {
		replicas, _ := g.Sentinel.Do("sentinel", "replicas", "main").([]any)
		return len(replicas) == 1
	})
	return g
}

// Failover makes the replica the primary, and waits until Sentinel says so.
func (g *Group) Failover() {
	g.Sentinel.t.Helper()
	g.Sentinel.Do("sentinel", "failover", "main")
	g.Promoted()
}

// Promoted waits until Sentinel says that the replica is the primary, and
// exchanges the two.
func (g *Group) Promoted() {
	t := g.Sentinel.t
	t.Helper()
	until(t, "the replica is the primary", func() bool {
		addr, _ := g.Sentinel.Do("sentinel", "get-master-addr-by-name", "main").([]any)
		return len(addr) == 2 && addr[1] == strconv.Itoa(g.Replica.Port()) &&
			bytes.Contains([]byte(fmt.Sprint(g.Replica.Do("info", "replication"))), []byte("role:master"))
	})
	g.Primary, g.Replica = g.Replica, g.Primary
}
