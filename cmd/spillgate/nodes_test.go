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

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
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
