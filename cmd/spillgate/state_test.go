package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/cmd/spillgate/internal/nginxtest"
)

// stated starts the gateway with a state file, in front of a new nginx.
func stated(t *testing.T, policy, state string, args ...string) *process {
	t.Helper()
	ng := nginxtest.Start(t, "location / { return 200 ok; }")
	return start(t, policy, append([]string{"--upstream", "http://" + ng.Addr, "--state", state}, args...)...)
}

func (p *process) stop(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	if s := p.exit(t); s.ExitCode() != exitOK {
		t.Fatalf("%s; log:\n%s", s, p.log)
	}
}

const (
	twoIn3s   = "rules: [{name: each, key: client.ip, limit: 2/3s}, {name: gone, key: client.ip, limit: 5/h}]"
	twoIn3sAs = "rules: [{name: other, key: client.ip, limit: 500/s}, {name: each, key: client.ip, limit: 2/3s}]"
)

// Who was refused before a restart is refused after it, until exactly the
// instant that it was told.
func TestRestartForgetsNothing(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	p := stated(t, twoIn3s, state)
	p.log.await(t, p.exited, "first start")
	c := visitor(t, "127.0.0.7")
	ask(t, c, "GET", p.url, "")
	began := time.Now() // the second unit is spent after this
	ask(t, c, "GET", p.url, "")
	told := ask(t, c, "GET", p.url, "")
	spent := time.Now()
	if told.status != 429 {
		t.Fatalf("the third: %d", told.status)
	}
	p.stop(t)
	if info, err := os.Stat(state); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	p = stated(t, twoIn3sAs, state) // in another order
	p.log.await(t, p.exited, "restored")
	if got := ask(t, visitor(t, "127.0.0.8"), "GET", p.url, ""); got.status != 200 {
		t.Errorf("another visitor: %d", got.status)
	}
	for {
		before := time.Now()
		got := ask(t, c, "GET", p.url, "")
		after := time.Now()
		if got.status == 200 {
			if after.Before(began.Add(time.Second)) {
				t.Errorf("passed %s after the limit was used up, want a unit each 1.5 s", after.Sub(began))
			}
			break
		}
		if before.After(spent.Add(1500 * time.Millisecond)) {
			t.Fatalf("still refused after %s: %s", before.Sub(spent), got.header.Get("Retry-After"))
		}
		<-time.After(5 * time.Millisecond)
	}
	p.stop(t)
}

// A crash loses what came since the file was saved, and nothing else.
func TestCrashLosesTheLastMinuteAtMost(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	const policy = "rules: [{name: each, key: client.ip, limit: 2/h}]"
	first, second := visitor(t, "127.0.0.7"), visitor(t, "127.0.0.8")
	p := stated(t, policy, state)
	ask(t, first, "GET", p.url, "")
	ask(t, first, "GET", p.url, "")
	p.stop(t)
	p = stated(t, policy, state)
	ask(t, second, "GET", p.url, "")
	ask(t, second, "GET", p.url, "")
	p.signal(t, syscall.SIGKILL)
	<-p.exited
	p = stated(t, policy, state)
	if got := ask(t, first, "GET", p.url, ""); got.status != 429 {
		t.Errorf("limited and saved: %d", got.status)
	}
	if got := ask(t, second, "GET", p.url, ""); got.status != 200 {
		t.Errorf("limited in the minute of the crash: %d", got.status)
	}
	p.stop(t)
}

// A file that can't be used stops the start, and says what to do; it is passed
// over when that is asked for.
func TestTornStateFile(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	const policy = "rules: [{name: each, key: client.ip, limit: 1/h}]"
	c := visitor(t, "127.0.0.7")
	p := stated(t, policy, state)
	ask(t, c, "GET", p.url, "")
	p.stop(t)
	whole, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(state, whole[:len(whole)-3], 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(file, []byte(policy+"\nserver: {state: "+strconv.Quote(state)+"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if code := run([]string{"serve", file, "--demo", "--listen", "127.0.0.1:0"}, &said, &said); code != exitRunning {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"not a whole snapshot", "torn", state, "--start-empty"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("no word of %q: %s", want, said.String())
		}
	}
	if now, err := os.ReadFile(state); err != nil || len(now) != len(whole)-3 {
		t.Errorf("the file that was refused was changed: %v", err)
	}
	p = start(t, file, "--demo", "--start-empty")
	p.log.await(t, p.exited, "starting empty")
	if got := ask(t, c, "GET", p.url, ""); got.status != 200 {
		t.Errorf("after an empty start: %d", got.status)
	}
	p.stop(t)
	p = start(t, file, "--demo")
	if got := ask(t, c, "GET", p.url, ""); got.status != 429 {
		t.Errorf("and a restart: %d", got.status)
	}
	p.stop(t)
}

// It is saved every minute, and once more at the end; what goes wrong is told,
// and tried again.
func TestStateIsSavedEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "sub")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		log := newNotes()
		mem := spillgate.NewMemory()
		defer mem.Close()
		s := &stateFile{filepath.Join(dir, "state"), mem, slog.New(slog.NewTextHandler(log, nil))}
		stop, err := s.keeping()
		if err != nil {
			t.Fatal(err)
		}
		saved := func() bool {
			_, err := os.Stat(s.path)
			os.Remove(s.path)
			return err == nil
		}
		if !saved() {
			t.Error("not saved at the start")
		}
		for range 3 {
			time.Sleep(59 * time.Second)
			if saved() {
				t.Error("saved within the minute")
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if !saved() {
				t.Error("not saved after a minute")
			}
		}
		if s := log.String(); s != "" {
			t.Errorf("log: %s", s)
		}
		os.Remove(dir)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !strings.Contains(log.String(), "not saved") || !strings.Contains(log.String(), "no such file") {
			t.Errorf("log: %s", log.String())
		}
		if err := stop(); err == nil {
			t.Error("no error at the end")
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := (&stateFile{filepath.Join(dir, "no", "state"), mem, s.logger}).keeping(); err == nil {
			t.Error("a path that can't be written is not found out")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.keep(ctx)
	})
}
