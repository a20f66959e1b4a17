package main

// A mutant is a fault put into the engine on purpose: in one file, a text that
// stands there exactly once is replaced by another.
type mutant struct {
	name     string
	file     string
	old, new string
}

var mutants = []mutant{
	// The bucket, and what it is made of.
	{"floor for ceil: passes a nanosecond early", "bucket.go", "if f.late+cap.part >= den {\n\t\td--", "if f.late+cap.part > 0 {\n\t\td--"},
	{"strict boundary: < for <=", "bucket.go", "case n > free:\n\t\tneed,", "case n >= free:\n\t\tneed,"},
	{"one too many", "bucket.go", "free := m.units(f.room(m.cap, m.den)) - q.Keep", "free := m.units(f.room(m.cap, m.den)) + 1 - q.Keep"},
	{"a cost above the burst passes", "bucket.go", "case n > m.most-q.Keep:\n\t\td.Reason, d.RetryAfter = NeverFits, Never\n\t\treturn s\n\tcase n > free:\n\t\tneed,", "case n > free && n <= m.most:\n\t\tneed,"},
	{"lost remainder", "bucket.go", "return m.pack(at, f.late)", "return m.pack(at, 0)"},
	{"retry after = reset after", "bucket.go", "d.RetryAfter = time.Duration(f.plus(need, m.den).over(m.cap, m.den))", "_ = need\n\t\td.RetryAfter = d.ResetAfter"},
	{"denied is charged", "bucket.go", "over(m.cap, m.den))\n\t\treturn s", "over(m.cap, m.den))\n\t\treturn m.packFlow(f.add(m.one, m.den), now)"},
	{"no cap: idle earns beyond the burst", "bucket.go", "\t\treturn flow{}\n\t}\n\tif ns", "\t\treturn flow{ns: min(0, s.A-int64(now)) * int64(min(s.B, 1))}\n\t}\n\tif ns"},
	{"idle wraps around", "bucket.go", "if s.B == 0 || s.A <= int64(now) {", "if s.B == 0 {"},
	{"64 bits for cost times period", "bucket.go", "hi, lo := bits.Mul64(uint64(n), m.num)", "hi, lo := uint64(0), uint64(n)*m.num"},
	{"64 bits for time times rate", "bucket.go", "hi, lo := bits.Mul64(uint64(s.ns), m.den)", "hi, lo := uint64(0), uint64(s.ns)*m.den"},
	{"debt wraps around", "bucket.go", "if q >= uint64(farthest) {", "if q > math.MaxUint64-1 {"},
	{"what is given back is lost", "bucket.go", "func (f flow) minus(s span, den uint64) flow {\n\tf.ns -= s.ns", "func (f flow) minus(s span, den uint64) flow {"},
	{"what was earned meanwhile is given back on top", "bucket.go", "if c.Until != 0 && c.Delta < 0 && m.den != 0 && sp.changed.Load() == 0 {", "if false {"},
	{"a raised burst is a present", "bucket.go", "lo, c = bits.Add64(lo, l, 0)\n\t\t\thi, _ = bits.Add64(hi, h, c)", "_, _, _ = l, h, c"},
	{"fill is ignored", "bucket.go", "if raised && m.limit.OnRaise == Fill {", "if false {"},
	{"a change rounds down", "meter.go", "if r != 0 {\n\t\tvar c uint64", "if false {\n\t\tvar c uint64"},
	{"the limit that wrote a state is ignored", "meter.go", "if uint32(s.B>>partBits) == m.id || s == (State{}) {", "if true {"},
	{"part of what must stay is given away", "meter.go", "q.Min <= q.N && q.Keep >= 0", "q.Min <= q.N"},
	{"a least amount is granted as all", "meter.go", "return max(min(q.N, free), q.Min)", "return q.N"},

	// The queue.
	{"the queue counts the one that leaves", "queue.go", "own, _ := m.spanOf(d.Taken - 1)", "own, _ := m.spanOf(d.Taken)"},
	{"a place too few in the queue", "bucket.go", "m.cap = m.cap.plus(m.one, m.den)", "_ = m.one"},

	// Windows.
	{"a window's end is in it", "fixed.go", "if s.B == 0 || s.A <= int64(now) {", "if s.B == 0 || s.A < int64(now) {"},
	{"given back into another window", "fixed.go", "case !m.window.at(end - 1).holds(taken):", "case false:"},
	{"retry a nanosecond late", "fixed.go", "d.RetryAfter = d.ResetAfter", "d.RetryAfter = d.ResetAfter + 1"},
	{"windows before the epoch are cut at it", "window.go", "if x < 0 {", "if false {"},
	{"the fraction of the previous window is dropped", "sliding.go", "if r != 0 {\n\t\tq++", "if r < 0 {\n\t\tq++"},
	{"the window before the previous still counts", "sliding.go", "case passed == 1:", "case passed >= 1 && passed < 3:"},
	{"retry of a sliding counter a nanosecond late", "sliding.go", "return period - int64(q)\n", "return period - int64(q) + 1\n"},
	{"given back into any window of a sliding counter", "sliding.go", "case (m.window.number(taken)+1)&partMask == c.number:", "default:"},
	{"a day has 24 hours", "calendar.go", "if until.IsZero() || at < until.Unix() {", "if true {"},
	{"a week begins on Sunday", "calendar.go", "(int(t.Weekday()) + 6) % 7", "int(t.Weekday())"},
	{"an hour that is gone through twice is one", "calendar.go", "if at := changeAt(from, math.MinInt64); at > b.start &&", "if at := changeAt(from, math.MinInt64); false && at > b.start &&"},

	// Logs and slots.
	{"an admission stays in view a nanosecond longer", "log.go", "gone := l.first(func(e *logEntry) bool { return e.at > until })", "gone := max(1, l.first(func(e *logEntry) bool { return e.at >= until }))"},
	{"admissions of two instants are one", "log.go", "if last.at >= now ||", "if last.at+1 >= now ||"},
	{"given back to the nearest admission", "log.go", "if i == l.n || l.entry(i).at != taken {\n\t\treturn", "if i == l.n {\n\t\treturn"},
	{"a log that grows loses its end", "log.go", "copy(ring[k:], l.ring[:l.head])", "_ = ring[k:]"},
	{"a slot is freed by who held it before", "slots.go", "l.places[i].id != slot", "l.places[i].id == 0"},
	{"a lost holder is healed a nanosecond late", "slots.go", "l.at(l.oldest).since <= until", "l.at(l.oldest).since < until"},

	// The store.
	{"time flows back", "internal/table/shard.go", "if now <= s.latest {", "if false {"},
	{"later charges aren't looked at", "takeall.go", "if !d.Allowed && !p.trial {", "if !d.Allowed && !p.trial && i == 0 {"},
	{"a trial refuses", "takeall.go", "if !d.Allowed && !p.trial {", "if !d.Allowed {"},
	{"a trial takes where the request is refused", "takeall.go", "c.withdraw(out)", "c.write(out)"},
	{"locks in the order of charges", "takeall.go", "for ; k > 0 && sh.Before(", "for ; false && sh.Before("},
	{"entries are promised twice", "takeall.go", "p.kind == inNew && p.wants && p.sh == c.parts[i].sh {", "p.kind == inNew && p.wants && p.sh == nil {"},
	{"a newcomer to a full table takes a place", "take.go", "} else if b.room(sh, tag, now, 0) {", "} else if b.room(sh, tag, now, 0) || true {"},
	{"an entry that still limits is dropped", "internal/table/place.go", "if new <= now {", "if new <= now+1 {"},
	{"overflow decides by a new bucket", "spill.go", "s := b.grant(m, b.loadSpilled(m, now), now, q, d)", "s := b.grant(m, State{}, now, q, d)"},
	{"overflow is not told", "spill.go", "d.Overflow = true", "_ = d.Overflow"},
	{"a settle of the overflow bucket goes to an entry", "take.go", "if !c.Overflow {", "if true {"},
	{"the ttl is ignored", "take.go", "if b.ttl > 0 && int64(now) >= later(sh.Stamp(i), b.ttl) {", "if false {"},
	{"a look makes an entry", "take.go", "if d.Taken > 0 {\n\t\t\tb.store(sh, sh.Put(", "if true {\n\t\t\tb.store(sh, sh.Put("},
	{"a straggler makes a change again", "store.go", "\t\t\tm = c.to\n", "\t\t\t_ = c.to\n"},
	{"a change waits for the key's next request", "store.go", "min(c.until, now)), c.to.id", "now), c.to.id"},
	{"kinds and parts of keys run into each other", "key.go", "dst = binary.AppendUvarint(dst, uint64(len(kind)))\n", ""},

	// Those who wait.
	{"a newcomer overtakes those who wait", "line.go", "if q == nil {\n\t\treturn Decision{}, false", "if true {\n\t\treturn Decision{}, false"},
	{"a hopeless wait is waited for", "line.go", "if need := expected.sub(now); need > w.patience {", "if need := expected.sub(now); need < 0 {"},
	{"who gave up has paid", "line.go", "w.limiter.settle(w.tag, w.decision, -w.decision.Taken)\n\t\tif q != nil", "if q != nil"},
	{"closing forgets those who wait", "line.go", "for w := u.queue.head; w != nil; w = w.next {\n\t\t\tw.wake(failed", "for w := u.queue.head; false; w = w.next {\n\t\t\tw.wake(failed"},
	{"a wait of a cancelled caller takes", "wait.go", "if err := ctx.Err(); err != nil {\n\t\treturn Decision{}, err\n\t}\n\tw :=", "w :="},
}
