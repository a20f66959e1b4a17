package spillgate

import "github.com/spillgate/spillgate/internal/table"

// plainMost is how many charges [Memory.takePlain] takes at most.
const plainMost = 8

// plain is a charge whose state is an entry of its own.
type plain struct {
	b             *binding
	sh            *table.Shard
	at            uint64
	index         int
	before, after State
}

// takePlain is [Memory.takeAll] for what most requests are: a few charges of
// different keys, under buckets and fixed windows that did not change, all of
// which have entries. It reports false, with nothing done, if a request is not
// of that kind. It does what takeAll does, in a third of the time, since it
// needs no parts, roots and buckets to share.
func (m *Memory) takePlain(now Instant, cs []Charge, out []Decision) bool {
	var ps [plainMost]plain
	var order [plainMost]uint8
	n := len(cs)
	for i := range cs {
		c, p := &cs[i], &ps[i]
		p.b = c.Space.bound.Load()
		if p.b == nil || p.b.memory != m || p.b.ttl > 0 || !c.Meter.plain {
			return false
		}
		p.sh, p.at = p.b.table.Shard(table.Tag(c.Key[0]))
		k := i
		for ; k > 0 && p.sh.Before(ps[order[k-1]].sh); k-- {
			order[k] = order[k-1]
		}
		if order[k] = uint8(i); k > 0 && ps[order[k-1]].sh == p.sh {
			return false
		}
	}
	for _, i := range order[:n] {
		ps[i].sh.Lock()
		now = max(now, Instant(ps[i].sh.Latest()))
	}
	ok := true
	for i := 0; i < n && ok; i++ {
		p := &ps[i]
		if p.index = p.sh.Find(table.Tag(cs[i].Key[0]), p.at); p.index >= 0 {
			p.before.A, p.before.B = p.sh.At(p.index)
		}
		ok = p.index >= 0 && uint32(p.before.B>>partBits) == cs[i].Meter.id && p.b.space.changed.Load() == 0
	}
	if ok {
		passes := true
		for i := range cs {
			c, p := &cs[i], &ps[i]
			p.sh.Advance(int64(now))
			p.after = c.Meter.decide(p.before, now, c.Ask, &out[i])
			passes = passes && (out[i].Allowed || c.Trial)
		}
		for i := range cs {
			c, p := &cs[i], &ps[i]
			switch {
			case out[i].Taken == 0:
			case passes:
				p.sh.Set(p.index, p.after.A, p.after.B, p.after.A)
			default: // what it would have said to nothing
				c.Meter.decide(p.before, now, Ask{Keep: c.Keep}, &out[i])
			}
		}
	}
	for _, i := range order[:n] {
		ps[i].sh.Unlock()
	}
	for i := 0; i < n && ok; i++ {
		if ps[i].b.table.Look(int64(now)) {
			break // once a call
		}
	}
	return ok
}
