package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spillgate/spillgate/cmd/spillgate/internal/nginxtest"
)

// built is the folder of the binary, if a test built it.
var built string

// binary builds the program once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "spillgate-test-")
	if err != nil {
		return "", err
	}
	built = dir
	program := filepath.Join(dir, "spillgate")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return program, nil
})

// A process is a running `spillgate serve`.
type process struct {
	cmd    *exec.Cmd
	url    string
	out    *notes // standard output
	log    *notes // standard error
	exited chan struct{}
}

// start starts `spillgate serve` with the policy on a free port.
func start(t *testing.T, policy string, args ...string) *process {
	t.Helper()
	return startTo(t, newNotes(), newNotes(), policy, args...)
}

func startTo(t *testing.T, out, log *notes, policy string, args ...string) *process {
	t.Helper()
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(policy, ".yaml") {
		file := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(file, []byte(policy), 0o644); err != nil {
			t.Fatal(err)
		}
		policy = file
	}
	p := &process{out: out, log: log, exited: make(chan struct{})}
	p.cmd = exec.Command(program, append([]string{"serve", policy, "--listen", "127.0.0.1:0"}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(p.exited); _ = p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.exited })
	line := p.out.await(t, p.exited, "spillgate limits http")
	p.url, _, _ = strings.Cut(line[strings.Index(line, "http"):], " ")
	return p
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// exit waits for the end and returns how it was.
func (p *process) exit(t *testing.T) *os.ProcessState {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(20 * time.Second):
		t.Fatalf("it does not end; log:\n%s", p.log)
	}
	return p.cmd.ProcessState
}

// notes are what a process writes.
type notes struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // has an element when something was added
}

func newNotes() *notes { return &notes{more: make(chan struct{}, 1)} }

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case n.more <- struct{}{}:
	default:
	}
	return n.text.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// await returns the first line with that text.
func (n *notes) await(t *testing.T, exited chan struct{}, text string) string {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		for line := range strings.Lines(n.String()) {
			if strings.Contains(line, text) && strings.HasSuffix(line, "\n") {
				return line
			}
		}
		select {
		case <-n.more:
		case <-exited:
			if !strings.Contains(n.String(), text) {
				t.Fatalf("it ended without a word of %q:\n%s", text, n)
			}
		case <-deadline:
			t.Fatalf("no word of %q:\n%s", text, n)
		}
	}
}

// visitor is a client whose address is that: any of 127.0.0.0/8.
func visitor(t *testing.T, addr string) *http.Client {
	t.Helper()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	tr := &http.Transport{DialContext: d.DialContext}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// A reply is an answer that was read whole.
type reply struct {
	status int
	header http.Header
	body   string
}

// ask sends a request; fields are names and values in turn.
func ask(t *testing.T, c *http.Client, method, url, host string, fields ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

const generous = "rules: [{name: wide, limit: 100000/s}]"

// slowly is an upstream whose answer to /slow waits to be released.
func slowly(t *testing.T) (url string, began, release chan struct{}) {
	t.Helper()
	began, release = make(chan struct{}, 10), make(chan struct{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			began <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = io.WriteString(w, "finished")
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Serve(ln) }()
	t.Cleanup(func() { srv.Close(); <-ended })
	return "http://" + ln.Addr().String(), began, release
}

func TestSignalsDrain(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			upstream, began, release := slowly(t)
			p := start(t, generous, "--upstream", upstream)
			done := make(chan reply, 1)
			go func() { done <- ask(t, visitor(t, "127.0.0.1"), "GET", p.url+"/slow", "") }()
			<-began
			p.signal(t, sig)
			p.log.await(t, p.exited, "stopping")
			addr := strings.TrimPrefix(p.url, "http://")
			for { // until nobody listens any more
				c, err := net.Dial("tcp", addr)
				if err != nil {
					break
				}
				c.Close()
			}
			close(release)
			if got := <-done; got.status != 200 || got.body != "finished" {
				t.Errorf("the request under way: %d %q", got.status, got.body)
			}
			if state := p.exit(t); state.ExitCode() != exitOK {
				t.Errorf("%s; log:\n%s", state, p.log)
			}
			if !strings.HasSuffix(p.out.String(), "stopped\n") {
				t.Errorf("output:\n%s", p.out)
			}
		})
	}
}

func TestDrainTimeEndsTheWait(t *testing.T) {
	upstream, began, _ := slowly(t)
	p := start(t, generous, "--upstream", upstream, "--drain", "50ms")
	broken := make(chan error, 1)
	go func() {
		_, err := visitor(t, "127.0.0.1").Get(p.url + "/slow")
		broken <- err
	}()
	<-began
	p.signal(t, syscall.SIGTERM)
	if state := p.exit(t); state.ExitCode() != exitOK {
		t.Errorf("%s; log:\n%s", state, p.log)
	}
	if err := <-broken; err == nil {
		t.Error("the request was answered after all")
	}
	if !strings.Contains(p.log.String(), "were cut") {
		t.Errorf("nothing was said of it:\n%s", p.log)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	upstream, began, _ := slowly(t)
	p := start(t, generous, "--upstream", upstream, "--drain", "1h")
	broken := make(chan error, 1)
	go func() {
		_, err := visitor(t, "127.0.0.1").Get(p.url + "/slow")
		broken <- err
	}()
	<-began
	p.signal(t, syscall.SIGINT)
	p.log.await(t, p.exited, "stopping")
	// Between the first signal's word and its handler's removal lies a moment.
	for ended := false; !ended; {
		p.signal(t, syscall.SIGINT)
		select {
		case <-p.exited:
			ended = true
		case <-time.After(20 * time.Millisecond):
		}
		if errors.Is(p.cmd.Process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
			ended = true
		}
	}
	status, ok := p.exit(t).Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGINT {
		t.Errorf("%s, want an end by the signal", p.cmd.ProcessState)
	}
	<-broken
}

func TestPortInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(file, []byte(generous), 0o644); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command(program, "serve", file, "--demo", "--listen", ln.Addr().String())
	cmd.Stderr = &said
	err = cmd.Run()
	if cmd.ProcessState.ExitCode() != exitRunning {
		t.Errorf("%v, want exit code %d", err, exitRunning)
	}
	for _, want := range []string{ln.Addr().String(), "address already in use", "--listen"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("no word of %q: %s", want, said.String())
		}
	}
}

func TestIdleCostsNothing(t *testing.T) {
	ng := nginxtest.Start(t, "location / { return 200 ok; }")
	p := start(t, "rules: [{name: each, key: [header.x-key, host], limit: 1/h}, {name: wide, key: client.ip, limit: 100000/s}]", "--upstream", "http://"+ng.Addr)
	c := visitor(t, "127.0.0.1")
	for i := range 2000 {
		if got := ask(t, c, "GET", p.url, "", "X-Key", strconv.Itoa(i)); got.status != 200 {
			t.Fatal(got.status)
		}
	}
	<-time.After(300 * time.Millisecond) // the runtime's own tidying
	before := ticks(t, p.cmd.Process.Pid)
	<-time.After(time.Second)
	if used := ticks(t, p.cmd.Process.Pid) - before; used > 3 {
		t.Errorf("an idle second with 2,000 keys took %d ms of CPU", used*10)
	}
}

// ticks is the CPU time of a process in hundredths of a second (proc(5)).
func ticks(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	sum := 0
	for _, i := range []int{11, 12} { // utime, stime
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// What `make run` prints is true: each line it tells to try is tried.
func TestDemoIsAsItIsTold(t *testing.T) {
	for policy, want := range map[string]int{
		"../../examples/quickstart.yaml":                       3,
		"rules: [{name: visitor, key: client.ip, limit: 5/s}]": 1, // of a policy of your own nothing else is known
	} {
		demoIsAsItIsTold(t, policy, want)
	}
}

func demoIsAsItIsTold(t *testing.T, policy string, lines int) {
	p := start(t, policy, "--demo")
	p.out.await(t, p.exited, "Ctrl-C stops.")
	var tried int
	out := bufio.NewScanner(strings.NewReader(p.out.String()))
	c := visitor(t, "127.0.0.1")
	for out.Scan() {
		command, promise, ok := strings.Cut(strings.TrimSpace(out.Text()), "#")
		words := strings.Fields(command)
		if !ok || len(words) == 0 || words[0] != "curl" {
			continue
		}
		method := http.MethodGet
		if strings.Contains(command, "-X POST") {
			method = http.MethodPost
		}
		got := ask(t, c, method, words[len(words)-1], "")
		want := http.StatusOK
		if strings.Contains(promise, "refused") {
			want = http.StatusTooManyRequests
		}
		if got.status != want || got.header.Get("RateLimit") == "" {
			t.Errorf("%s: %d with %v, want %d", command, got.status, got.header, want)
		}
		tried++
	}
	if tried != lines {
		t.Errorf("%d lines to try, want %d:\n%s", tried, lines, p.out)
	}
	p.signal(t, syscall.SIGINT)
	if state := p.exit(t); state.ExitCode() != exitOK {
		t.Errorf("%s; log:\n%s", state, p.log)
	}
}

// "stopped" is the last word: what is said of the end comes before it.
func TestStoppedIsTheLastWord(t *testing.T) {
	both := newNotes()
	p := startTo(t, both, both, "rules:\n  - {name: login, key: client.ip, limit: 1/h, penalty: {after: 2, within: 1m, block: 1h}}\n", "--demo")
	p.signal(t, syscall.SIGTERM)
	p.exit(t)
	if text := both.String(); !strings.Contains(text, "keys blocked by a penalty") || !strings.HasSuffix(text, "\nstopped\n") {
		t.Errorf("%s", text)
	}
}
