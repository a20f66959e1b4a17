package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
	"github.com/spillgate/spillgate/redisstore"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// TestGatewaysCountEachOther has two gateways decide by half of a limit each while
// their store is away, though nobody told them that they are two.
func TestGatewaysCountEachOther(t *testing.T) {
	t.Parallel() // the first hears of the second within 5 s
	server := redistest.Start(t)
	file := fmt.Sprintf(`
server: {store: {redis: redis://%s, prefix: "counted:", timeout: 2s}}
rules:
  - {name: all, limit: 1/h burst 9, key: client.ip, on_fault: local}
`, server.Addr)
	a, b := start(t, file, "--demo"), start(t, file, "--demo")
	for _, p := range []*process{a, b} {
		p.log.await(t, p.exited, "nodes=2 ")
	}
	server.Kill()
	for name, p := range map[string]*process{"a": a, "b": b} {
		passed := 0
		for range 9 {
			if status(t, p.url) == http.StatusOK {
				passed++
			}
		}
		if passed != 4 {
			t.Errorf("%s: %d of 9 passed while the store is away, want half", name, passed)
		}
	}
	b.signal(t, os.Interrupt)
	if b.exit(t).ExitCode() != 0 {
		t.Errorf("it ends with %v:\n%s", b.cmd.ProcessState, b.log)
	}
	b.log.await(t, b.exited, "nodes_counted=2")
}

// TestGatewaysThatAreToldAreCounted: one whose file says how many there are is counted by
// one whose file does not, goes by its file, and asks for no right to count.
func TestGatewaysThatAreToldAreCounted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	limit, err := spillgate.ParseLimit("1000/h burst 1000")
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile([]policy.Rule{{Name: "r", Limit: limit}})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	loggers := map[bool]*slog.Logger{true: slog.New(slog.NewTextHandler(&log, nil)), false: slog.New(slog.DiscardHandler)}
	begin := func(nodes int) (again func(), e *policy.Engine, leased *spillgate.Leased) {
		s, err := redisstore.New(server.Client(), redisstore.Budget(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if leased, err = spillgate.NewLeased(s, spillgate.LeaseOptions{Nodes: max(1, nodes)}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { leased.Close(); s.Close() })
		e = policy.NewEngine(p, leased, policy.Nodes(nodes))
		again = func() { countNodes(leased, &policyfile.Store{Nodes: nodes}, e, loggers[nodes > 0]) }
		again()
		return again, e, leased
	}
	until := func(what string, again func(), ok func() bool) { // one count may take too long
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !ok(); again() {
			if time.Now().After(deadline) {
				t.Fatalf("not after 20s: %s", what)
			}
		}
	}
	again, told, leased := begin(2)
	until("it puts its name down", again, func() bool { return server.Do("zcard", "sg1:nodes") == int64(1) })
	again, counting, _ := begin(0)
	until("the one that counts knows of both", again, func() bool { return counting.Nodes() == 2 })
	if k := leased.Bound(limit).Block; told.Nodes() != 2 || k != 25 {
		t.Errorf("the other goes by %d, with blocks of %d", told.Nodes(), k)
	}
	server.Do("acl", "setuser", "default", "-zadd")
	if _, e, _ := begin(3); e.Nodes() != 3 || log.Len() > 0 {
		t.Errorf("without the right it goes by %d, and the log has:\n%s", e.Nodes(), &log)
	}
}

// TestNodeCount: the engine goes by the last count there was, leases only by one that
// all have made, and the log tells what changed, and once what somebody has to do.
func TestNodeCount(t *testing.T) {
	limit, err := spillgate.ParseLimit("1000/h burst 1000")
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile([]policy.Rule{{Name: "r", Limit: limit}})
	if err != nil {
		t.Fatal(err)
	}
	leased, err := spillgate.NewLeased(spillgate.NewMemory(), spillgate.LeaseOptions{Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer leased.Close()
	var log bytes.Buffer
	n := &nodeCount{engine: policy.NewEngine(p, leased), leased: leased, logger: slog.New(slog.NewTextHandler(&log, nil))}
	for i, step := range []struct {
		told  redisstore.Nodes
		nodes int
		block int64
		lines []string
	}{
		{redisstore.Nodes{Fault: redisstore.Refused}, 1, 0, []string{"is not known before it answers"}},
		{redisstore.Nodes{Count: 2}, 2, 0, []string{"nodes=2 before=0"}},
		{redisstore.Nodes{Count: 2, Mutual: true}, 2, 25, []string{"leases begin"}},
		{redisstore.Nodes{Count: 5, Mutual: true}, 5, 10, []string{"nodes=5 before=2"}},
		{redisstore.Nodes{Count: 5, Mutual: true, Fault: redisstore.TimedOut}, 5, 10, nil},
		{redisstore.Nodes{Count: 5, Mutual: true, Fault: redisstore.Denied}, 5, 10, []string{"can't count each other"}},
		{redisstore.Nodes{Count: 5, Fault: redisstore.Denied}, 5, 0, []string{"leases rest"}},
		{redisstore.Nodes{Count: 5, Fault: redisstore.Refused}, 5, 0, nil},
		{redisstore.Nodes{Count: 5, Fault: redisstore.Denied}, 5, 0, nil},
		{redisstore.Nodes{Count: 4, Mutual: true}, 4, 12, []string{"nodes=4 before=5", "leases begin"}},
		{redisstore.Nodes{Count: 4, Mutual: true, Fault: redisstore.WrongType}, 4, 12, []string{"can't count each other"}},
	} {
		log.Reset()
		n.tell(step.told)
		if got := leased.Bound(limit).Block; got != step.block || n.engine.Nodes() != step.nodes {
			t.Errorf("step %d: %d nodes and blocks of %d, want %d and %d", i, n.engine.Nodes(), got, step.nodes, step.block)
		}
		if got := strings.Count(log.String(), "\n"); got != len(step.lines) {
			t.Errorf("step %d: %d lines, want %d:\n%s", i, got, len(step.lines), &log)
		}
		for _, line := range step.lines {
			if !strings.Contains(log.String(), line) {
				t.Errorf("step %d: nothing of %q in the log:\n%s", i, line, &log)
			}
		}
	}
	if v := n.engine.Decide(context.Background(), policy.Attrs{}); !v.Allowed {
		t.Errorf("%+v", v)
	}
}

// TestMoreNodesThanSaid: a number in the file that is too low is told of, one that is
// high enough is not.
func TestMoreNodesThanSaid(t *testing.T) {
	var log bytes.Buffer
	n := &nodeCount{logger: slog.New(slog.NewTextHandler(&log, nil))}
	for i, step := range []struct {
		seen int
		told bool
	}{{0, false}, {1, false}, {2, false}, {3, true}, {3, false}, {4, true}, {2, false}, {3, true}} {
		log.Reset()
		n.compare(2, step.seen)
		want := fmt.Sprintf("nodes=2 seen=%d", step.seen)
		if told := strings.Contains(log.String(), want); told != step.told {
			t.Errorf("step %d: told %t of %d:\n%s", i, told, step.seen, &log)
		}
	}
}
