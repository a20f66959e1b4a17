// Package server starts the programs that a bench measures. Each is a process of
// its own, on one core if it is one of Go, and ends with the bench.
package server

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
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

// A Server is a process that this one started.
type Server struct {
	// Addr is the loopback address that it serves at.
	Addr string

	cmd   *exec.Cmd
	said  bytes.Buffer // on standard error; to be read when it has ended
	ended chan struct{}
	end   error
}

// Gateway builds the gateway into a folder and returns the program.
func Gateway(dir string) (program string, err error) {
	program = filepath.Join(dir, "spillgate")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/spillgate/spillgate/cmd/spillgate").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return program, nil
}

var serves = regexp.MustCompile(`http://(127\.0\.0\.1:\d+)\s`)

// Start starts a program that says on its first line where it serves.
func Start(program string, args ...string) (*Server, error) {
	s := newServer(program, args...)
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.cmd.Stdout = in
	err = s.run()
	in.Close()
	if err != nil {
		out.Close()
		return nil, err
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	go func() {
		defer out.Close()
		_, _ = io.Copy(io.Discard, lines) // until it ends
	}()
	m := serves.FindStringSubmatch(line)
	if m == nil {
		s.Stop()
		return nil, errors.Join(fmt.Errorf("%s says %q, not where it serves\n%s", program, line, s.said.String()), err)
	}
	s.Addr = m[1]
	return s, nil
}

// FreeAddr returns a loopback address that nobody listens at. Another program may
// take it before one does that is told to: then the run fails and says so.
func FreeAddr() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// StartAt starts a program that is told to listen at an address, and waits until
// it does.
func StartAt(addr, program string, args ...string) (*Server, error) {
	s := newServer(program, args...)
	s.Addr = addr
	if err := s.run(); err != nil {
		return nil, fmt.Errorf("%w; `make needs` installs what is missing", err)
	}
	late := time.After(10 * time.Second)
	for {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return s, nil
		}
		select {
		case <-s.ended:
			return nil, fmt.Errorf("%s ended at its start: %w\n%s", program, s.end, s.said.String())
		case <-late:
			s.Stop()
			return nil, fmt.Errorf("%s does not answer at %s\n%s", program, addr, s.said.String())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func newServer(program string, args ...string) *Server {
	s := &Server{cmd: exec.Command(program, args...), ended: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // two would wake each other
	s.cmd.Stderr = &s.said
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return s
}

func (s *Server) run() error {
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(s.ended)
		s.end = s.cmd.Wait()
	}()
	return nil
}

// Stop kills s: it has nothing to lose. Of no server it does nothing.
func (s *Server) Stop() {
	if s != nil {
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// Freeze stops s where it is, as if its machine had; Thaw lets it go on.
func (s *Server) Freeze() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw undoes Freeze.
func (s *Server) Thaw() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

// End lets s end by itself, and returns the processor time that it took from its
// start on. It is exact where [Server.CPU] is not.
func (s *Server) End() (time.Duration, error) {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	if <-s.ended; s.end != nil {
		return 0, fmt.Errorf("%s: %w\n%s", s.cmd.Path, s.end, s.said.String())
	}
	return s.cmd.ProcessState.UserTime() + s.cmd.ProcessState.SystemTime(), nil
}

// tick is the unit of /proc/PID/stat on Linux: USER_HZ is 100 on every machine
// that Go runs on.
const tick = 10 * time.Millisecond

// CPU returns the processor time that s has used so far, to 10 ms.
func (s *Server) CPU() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// What follows the name, which is in parentheses: user time is the 12th
	// field from there, system time the 13th (proc(5)).
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("can't read %q", text)
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}
