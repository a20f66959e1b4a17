package redisstore

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/spillgate/spillgate"
)

// A kind says what the script is to do with a key; head.lua, ask.lua and kept.lua
// go by the numbers.
type kind byte

const (
	kindPeek       kind = 0
	kindBucket     kind = 1
	kindBucketLess kind = 2 // with Min
	kindFixed      kind = 3
	kindSliding    kind = 4
	kindSpent      kind = 5 // a bucket that earns nothing
	kindLog        kind = 6
	kindSlots      kind = 7
	kindNone       kind = 9  // unlimited: nothing is kept
	kindAdd        kind = 11 // to a bucket, by a settle
	kindBack       kind = 12
	kindSettle     kind = 10 // plus that of the state, for the others
	kindReplace    kind = 20
	kindRefuse     kind = 21
	flagTrial           = 1
	flagStrict          = 2 // a key that is not there is no new one
	flagTTL             = 4
	most                = 1 << 52
	shortPeriod         = 1 << 43 // below it the script finds windows itself
	neverFits           = -1e15
	distant             = 1e15
)

// kindOf returns the kind of m's states.
func kindOf(m *spillgate.Meter) kind {
	switch m.Limit().Algorithm {
	case spillgate.Bucket, spillgate.Queue:
		if m.Parts() == 0 {
			return kindSpent
		}
		return kindBucket
	case spillgate.FixedWindow:
		return kindFixed
	case spillgate.SlidingCounter:
		return kindSliding
	case spillgate.SlidingLog:
		return kindLog
	case spillgate.Concurrency:
		return kindSlots
	}
	return kindNone
}

func (k kind) kept() bool { return k == kindLog || k == kindSlots }

// letters end the keys of an algorithm: each has keys of its own, so that processes
// that count a rule in different ways, as while its algorithm is being changed, do not
// begin each other's states anew. Those of buckets have none.
var letters = [...]string{spillgate.Queue: "q", spillgate.FixedWindow: "f", spillgate.SlidingCounter: "s", spillgate.SlidingLog: "l", spillgate.Concurrency: "c", spillgate.Unlimited: ""}

// An ask is what the script is asked of a key, or told to settle, without the
// key: equal asks of a call are sent once, and made once.
type ask struct {
	m      *spillgate.Meter
	q      spillgate.Ask
	trial  bool
	strict bool
	ttl    time.Duration
	// Of settles.
	settle bool
	delta  int64
	at     spillgate.Instant
	slot   uint64
	until  spillgate.Instant
	// Of windows whose place the script can't find: the instant to expect.
	near spillgate.Instant
	// Of logs and slots: when the limit was last changed, and whose changes
	// those are, nil if there were none.
	changed spillgate.Instant
	space   *spillgate.Space
}

// encoder writes an ask: kind, flags, length of the label, count of numbers,
// the label, the numbers as doubles.
type encoder struct {
	b []byte
	n int
}

func (e *encoder) begin(k kind, flags byte, m *spillgate.Meter) {
	e.b = append(e.b, byte(k), flags, 0, 0)
	if m != nil {
		e.b = appendLabel(e.b, m.Limit(), flags&flagTTL != 0)
		e.b[2] = byte(len(e.b) - 4)
	}
}

func (e *encoder) numbers(xs ...float64) {
	for _, x := range xs {
		e.b = binary.BigEndian.AppendUint64(e.b, math.Float64bits(x))
		e.n++
	}
	e.b[3] = byte(e.n)
}

// raw writes numbers that are not counted.
func (e *encoder) raw(xs ...float64) {
	for _, x := range xs {
		e.b = binary.BigEndian.AppendUint64(e.b, math.Float64bits(x))
	}
}

func (e *encoder) instant(at spillgate.Instant) {
	s, n := split(int64(at))
	e.numbers(float64(s), float64(n))
}

// span writes seconds, nanoseconds and parts.
func (e *encoder) span(ns int64, part uint64) {
	e.instant(spillgate.Instant(ns))
	e.numbers(float64(part))
}

func count(n int64) float64 { return float64(max(-most, min(n, most))) }

// amounts returns how much of q there has to be, how much of that is taken at
// least, and how much more may be.
func amounts(q spillgate.Ask) (need, least, more int64) {
	if q.Need > q.N {
		return q.Need, q.N, 0
	}
	return q.Least(), q.Least(), q.N - q.Least()
}

// windows writes the period and the windows about near.
func (e *encoder) windows(m *spillgate.Meter, near spillgate.Instant) {
	p := int64(m.Limit().Period)
	if p > 0 && p < shortPeriod {
		e.numbers(float64(p))
	} else {
		e.numbers(0)
	}
	e.instant(spillgate.Instant(p))
	if near == 0 {
		e.numbers(distant, 0, distant, 0, distant, 0)
		return
	}
	start, end := m.Window(near)
	_, next := m.Window(end)
	e.instant(start)
	e.instant(end)
	e.instant(next)
}

// encode returns a as the script reads it.
func (a *ask) encode() string {
	e := encoder{b: make([]byte, 0, 160)}
	var flags byte
	if a.trial {
		flags |= flagTrial
	}
	if a.strict {
		flags |= flagStrict
	}
	if a.ttl > 0 {
		flags |= flagTTL
	}
	k := kindOf(a.m)
	switch {
	case a.settle:
		a.encodeSettle(&e, k, flags)
	case a.q.N == 0 && a.q.Need == 0 && !k.kept():
		e.begin(kindPeek, flags, a.m)
	case k == kindBucket:
		a.encodeBucket(&e, flags)
	default:
		e.begin(k, flags, a.m)
		need, least, more := amounts(a.q)
		holds := a.m.Limit().Rate
		if k == kindSpent {
			holds = a.m.Limit().Burst
		}
		holds -= min(a.q.Keep, most) + min(need-least, most)
		if need == 0 {
			holds = most // to look is never refused
		}
		e.numbers(count(holds), count(least), count(more))
		switch k {
		case kindSpent:
		case kindFixed, kindSliding:
			e.windows(a.m, a.near)
		default:
			a.encodeKept(&e)
		}
	}
	if a.ttl > 0 {
		e.instant(spillgate.Instant(a.ttl))
	}
	return string(e.b)
}

func (a *ask) encodeKept(e *encoder) {
	e.instant(spillgate.Instant(a.m.Limit().Period))
	e.instant(a.changed)
	e.numbers(float64(a.m.Limit().Rate + logDebt))
	a.encodeChanges(e)
}

// maxChanges is how many changes of a limit are told to the script. What was
// written before counts as written by the first of them.
const maxChanges = 16

// encodeChanges writes how many changes of a log's or slots' limit there were,
// and for each the period before, until when, and the period since.
func (a *ask) encodeChanges(e *encoder) {
	var all []spillgate.LimitChange
	if a.space != nil {
		kind := a.m.Limit().Algorithm
		for c := range a.space.Changes() {
			if c.From.Limit().Algorithm == kind && c.To.Limit().Algorithm == kind && c.At <= a.changed {
				all = append(all, c)
			}
		}
	}
	all = all[max(0, len(all)-maxChanges):]
	e.numbers(float64(len(all)))
	for _, c := range all {
		e.instant(spillgate.Instant(c.From.Limit().Period))
		e.instant(c.At)
		e.instant(spillgate.Instant(c.To.Limit().Period))
	}
}

// logDebt is how many entries a log has room for beyond its rate, as in memory.
const logDebt = 64

func (a *ask) encodeBucket(e *encoder, flags byte) {
	k := kindBucket
	need, least, more := amounts(a.q)
	if more > 0 {
		k = kindBucketLess
	}
	e.begin(k, flags, a.m)
	den := a.m.Parts()
	e.numbers(float64(den))
	ns, part := a.m.Room()
	if need += a.q.Keep; need < a.q.Keep {
		need = math.MaxInt64
	}
	needs, over, ok := a.m.Span(need)
	if ns -= needs; part < over {
		part += den
		ns--
	}
	if !ok || ns < 0 || need > a.m.Limit().Cap() {
		e.numbers(neverFits, 0, 0)
	} else {
		e.span(ns, part-over)
	}
	ns, part, _ = a.m.Span(least)
	e.span(ns, part)
	if more > 0 {
		e.numbers(float64(more>>32), float64(more&math.MaxUint32))
		ns, part, _ = a.m.Span(1)
		e.span(ns, part)
	}
}

func (a *ask) encodeSettle(e *encoder, k kind, flags byte) {
	switch k {
	case kindBucket:
		den := float64(a.m.Parts())
		if a.delta > 0 {
			e.begin(kindAdd, flags, a.m)
			e.numbers(den)
			ns, part, _ := a.m.Span(a.delta)
			e.span(ns, part)
			return
		}
		e.begin(kindBack, flags, a.m)
		e.numbers(den)
		ns, part, ok := a.m.Span(-max(a.delta, -math.MaxInt64))
		e.span(ns, part)
		e.numbers(flag(!ok || a.delta == math.MinInt64), flag(a.until != 0))
		e.instant(a.until)
		return
	case kindFixed, kindSliding:
		e.begin(kindSettle+k, flags, a.m)
		e.numbers(count(a.delta))
		start, end := a.m.Window(a.at)
		if k == kindFixed {
			start = end
		}
		e.instant(start)
		e.windows(a.m, a.near)
	case kindSpent:
		e.begin(kindSettle+k, flags, a.m)
		e.numbers(count(a.delta))
	case kindLog:
		e.begin(kindSettle+k, flags, a.m)
		e.numbers(count(a.delta))
		e.instant(a.at)
		a.encodeKept(e)
	case kindSlots:
		e.begin(kindSettle+k, flags, a.m)
		e.numbers(count(a.delta), float64(min(a.slot, 1<<53)), 0)
		a.encodeKept(e)
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// A replacement says what a state is to become if it still is what it was.
type replacement struct {
	from, to string // "": not there
	same     bool   // it is to stay what it is
	given    bool
	now      spillgate.Instant
	until    spillgate.Instant
}

func (r *replacement) encode() string {
	var e encoder
	e.begin(kindReplace, 0, nil)
	if r.same {
		e.numbers(2, 0)
	} else if r.given {
		e.numbers(1, lapseGiven(r.now, r.until))
	} else {
		s, _ := split(int64(r.until))
		e.numbers(0, float64(s>>2<<2+4)) // as lapse has it in ask.lua
	}
	e.numbers(float64(len(r.from)))
	return string(e.b) + r.from + r.to
}

// lapseGiven returns after how many seconds a key ends whose state is new at until on
// a clock that is given: an hour after it could.
func lapseGiven(now, until spillgate.Instant) float64 {
	from, _ := split(int64(now))
	to, _ := split(int64(until))
	return float64(to - from + 3601)
}
