package nemesis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/redisstore/redistest"
)

// eventually waits until ok is true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); wait(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("still not after 2 minutes: ", what)
		}
	}
}

// says reports whether a server that may be away says something of itself.
func says(t *testing.T, s *redistest.Server, what, text string) bool {
	info, err := s.Client().Info(t.Context(), what).Result()
	return err == nil && strings.Contains(info, text)
}

// TestNemesisCluster: a cluster of three, of which one stands still, one dies and
// comes back with nothing, and one dies whose replica takes its place. Keys of one
// server have one order, as ever. Requests with keys on several are charged slot by
// slot, and to no key more than I16 says: what is charged to one and refused by
// another is given back.
func TestNemesisCluster(t *testing.T) {
	t.Parallel()
	servers := redistest.Cluster(t, 3)
	replica := redistest.ReplicaOf(t, servers, servers[2])
	// Only when the primary was killed: not since it stood still for a while.
	replica.Do("config", "set", "cluster-replica-no-failover", "yes")
	o := order{Kind: cluster, Budget: longer, Generation: 800 * time.Millisecond, Places: make([]string, len(servers))}
	for _, s := range servers {
		o.Addrs = append(o.Addrs, s.Addr)
	}
	for i, found := 0, 0; found < len(servers); i++ {
		prefix := fmt.Sprintf("{%d}:", i)
		slot := int(servers[0].Do("cluster", "keyslot", prefix).(int64))
		for place := range servers {
			if slot >= place*16384/3 && slot < (place+1)*16384/3 && o.Places[place] == "" {
				o.Places[place] = prefix
				found++
			}
		}
	}
	all := start(t, o)
	losses := play(t, all, false, []fault{
		{name: "stop", do: servers[0].Pause, undo: servers[0].Continue},
		{name: "kill", loses: true, place: 1, do: servers[1].Kill, undo: servers[1].Run},
		{name: "failover", loses: true, place: 2, failover: func(l *loss) {
			replica.Do("config", "set", "cluster-replica-no-failover", "no")
			l.from = clock()
			servers[2].Kill()
			l.to = clock()
			l.joining, l.joined = l.from, l.to // the one before is dead
			eventually(t, "the replica is the primary", func() bool { return says(t, replica, "replication", "role:master") })
		}, undo: func() {
			servers[2].Run()
			servers[2], replica = replica, servers[2]
			eventually(t, "the one before is a replica", func() bool { return says(t, replica, "replication", "master_link_status:up") })
			replica.Do("config", "set", "cluster-replica-no-failover", "yes")
		}},
	})
	logs := stop(t, all)
	check(t, logs, losses, false, o.Budget)
	within(t, "all users", together, 0, losses, logs, func(*admission) bool { return true })
	ordered(t, logs, losses)
	denied := uint64(0)
	for _, l := range logs {
		denied += l.OverDenied
	}
	t.Logf("%d requests were given back in one slot since another refused or failed", denied)
}
