package main

import (
	"log/slog"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
	"github.com/spillgate/spillgate/redisstore"
)

// A nodeCount has an engine, and leases, go by how many gateways share the store.
type nodeCount struct {
	engine *policy.Engine
	leased *spillgate.Leased // nil if nothing is leased
	logger *slog.Logger

	last   redisstore.Nodes
	told   bool // anything
	warned bool // of the fault that lasts
}

// countNodes has the gateways that share store count each other. One whose file says
// how many there are is counted by those whose file does not, as in a change from one to
// the other, but goes by the file, and does without the right to count.
func countNodes(store spillgate.Store, c *policyfile.Store, e *policy.Engine, logger *slog.Logger) {
	n := &nodeCount{engine: e, logger: logger}
	if l, ok := store.(*spillgate.Leased); ok {
		n.leased, store = l, l.Inner()
	}
	shared, ok := store.(*redisstore.Store)
	switch {
	case !ok:
	case c.Nodes > 0:
		shared.CountNodes(func(now redisstore.Nodes) { n.compare(c.Nodes, now.Count) })
	default:
		if n.leased != nil {
			n.leased.SetNodes(0)
		}
		shared.CountNodes(n.tell)
	}
}

// tell takes a count over, and tells the log of it.
func (n *nodeCount) tell(now redisstore.Nodes) {
	was, first := n.last, !n.told
	n.last, n.told = now, true
	if now.Count > 0 {
		n.engine.SetNodes(now.Count)
	}
	if n.leased != nil {
		if now.Mutual {
			n.leased.SetNodes(now.Count)
		} else {
			n.leased.SetNodes(0)
		}
	}
	lasts := now.Fault == redisstore.Denied || now.Fault == redisstore.WrongType
	switch {
	case lasts && !n.warned:
		n.logger.Warn("the gateways that share the store can't count each other: give their user the rights that docs/operations.md lists, leave the key that ends in nodes to them, or say how many there are (server.store.nodes)",
			"fault", now.Fault.String(), "nodes", n.engine.Nodes(), "leases", n.leased != nil && now.Mutual)
	case first && now.Count == 0 && !lasts:
		n.logger.Warn("how many gateways share the store is not known before it answers: until then this one decides alone, by the whole limit, where on_fault is local; server.store.nodes would say",
			"fault", now.Fault.String())
	}
	n.warned = lasts || n.warned && now.Fault != redisstore.NoFault
	if now.Count != was.Count {
		n.logger.Info("gateways share the store", "nodes", now.Count, "before", was.Count)
	}
	switch {
	case n.leased == nil || now.Mutual == was.Mutual:
	case now.Mutual:
		n.logger.Info("leases begin: the gateways that share the store have counted each other", "nodes", now.Count)
	default:
		n.logger.Info("leases rest: the gateways that share the store could not be counted for a while", "fault", now.Fault.String())
	}
}

// compare tells the log when more are seen than the file says, and each time when there
// are still more. Fewer are the file's good right.
func (n *nodeCount) compare(said, seen int) {
	if seen > said && seen > n.last.Count {
		n.logger.Warn("more gateways share the store than server.store.nodes says: while it is away, and by leases, they may admit more than the limits say; give all of them the number that there may be at once, or leave nodes out",
			"nodes", said, "seen", seen)
	}
	n.last.Count = seen
}
