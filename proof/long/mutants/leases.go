package main

// leases are faults in what is held and spent without a call.
var leases = []mutant{
	{"units are spent before they are paid", "lease.go", "	case e.have >= n:", "	case e.have+1 >= n:"},
	{"the share is each node's", "leased.go", "k := int64(l.share * float64(most) / float64(n))", "k := int64(l.share * float64(most))"},
	{"a call that failed is sent again", "leasedtake.go", "	err := l.inner.Take(ctx, at, c.charges[:c.asks], c.answers[:c.asks])\n", "	err := l.inner.Take(ctx, at, c.charges[:c.asks], c.answers[:c.asks])\n	if err != nil {\n		err = l.inner.Take(ctx, at, c.charges[:c.asks], c.answers[:c.asks])\n	}\n"},
	{"what was set aside for a refusal is lost", "leasedtake.go", "				p.unspend()\n				p.nothing", "				p.nothing"},
	{"what was set aside for a fault is lost", "leasedtake.go", "			p.unpin()\n			p.unspend()", "			p.unpin()"},
	{"what a request took is held, too", "leasedtake.go", "a.granted = a.Taken - p.need", "a.granted = a.Taken"},
	{"what a request took of a lease is put back", "leasedtake.go", "if p.unpin(); !taken {", "if p.unpin(); true {"},
	{"a lease outlives its window", "lease.go", "e.have > 0 && there >= e.until {", "false {"},
	{"a lease is given back and kept", "lease.go", "	sh.setHave(e, 0)\n	return c", "	return c"},
	{"what was earned meanwhile comes back to a lease on top", "leasedsettle.go", "ok && (s.ns < left || s.ns == left && s.part == 0)", "ok || s.ns < left"},
	{"what is fetched ahead is spent before it is paid", "leasedahead.go", "	c.parts[0].pin()\n", "	c.parts[0].pin()\n	sh.setHave(e, e.have+more)\n"},
	{"what came back by itself is kept for ever", "lease.go", "		over = max(over, e.since+recall)\n", "		return false\n"},
	{"what others miss is kept", "lease.go", "limit.Algorithm == Bucket && e.until <= there", "limit.Algorithm == Bucket"},
	{"a drained key is asked for unit by unit", "lease.go", "max(e.refused, 2*e.chunk)", "e.refused"},
	{"a refusal is remembered until its end", "lease.go", "	if age > recall {", "	if false {"},
	{"a lane waits for what another one would fetch", "lease.go", "	if q.Keep == e.keep {\n		return max", "	if true {\n		return max"},
	{"a lane waits for more than it may use", "lease.go", "l.block(m.most-lane, nodes)", "most"},
	{"a block is lost with its caller", "leasedleft.go", "context.WithoutCancel(ctx)", "ctx"},
	{"who leaves is charged", "leasedleft.go", "			c.giveAll(l, at, f.cs, f.out)\n", ""},
	{"a store is closed before what is fetched for nobody is there", "leasedleft.go", "		defer l.low.done.Done()\n", "		l.low.done.Done()\n"},
	{"an answer that was overtaken says until when all is missing", "lease.go", "e.back == 0 || e.until < full", "true"},
	{"a retry is told a nanosecond early", "lease.go", "d.RetryAfter = time.Duration(later(int64(d.RetryAfter), 1))", "_ = 0"},
}
