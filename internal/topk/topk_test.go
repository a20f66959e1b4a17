package topk

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// keyOf is the digest of caller n (SplitMix64), which spreads as a keyed
// digest does.
func keyOf(n uint64) Key { return Key{mix(2 * n), mix(2*n + 1)} }

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func textOf(n uint64) []byte { return fmt.Appendf(nil, "client.ip=%d", n) }

func feed(l *List, key Key, ev Event, text func() []byte) {
	if !l.Count(key, ev) {
		l.Enter(key, ev, text())
	}
}

// truth counts a stream exactly, beside the list under test.
type truth struct {
	list         *List
	k            int
	now          int64
	denied, near map[uint64]uint64
	last         map[uint64]Event
}

func newTruth(k int) *truth {
	return &truth{list: New(k), k: k, denied: map[uint64]uint64{}, near: map[uint64]uint64{}, last: map[uint64]Event{}}
}

func (m *truth) add(n uint64, denied bool) {
	m.now++
	ev := Event{Denied: denied, Trial: n%3 == 0, At: m.now, Free: m.now + int64(n%7)}
	if denied {
		m.denied[n]++
	} else {
		m.near[n]++
	}
	m.last[n] = ev
	feed(m.list, keyOf(n), ev, func() []byte { return textOf(n) })
}

// check holds the list's promises, and its parts against each other.
func (m *truth) check(t *testing.T) {
	t.Helper()
	l := m.list
	rows := map[string]Row{}
	for _, r := range l.Top(m.k) {
		if _, twice := rows[r.Text]; twice {
			t.Errorf("%s is listed twice", r.Text)
		}
		rows[r.Text] = r
	}
	total := uint64(m.now)
	floor := l.Floor()
	if len(rows) > m.k || l.Total() != total || floor > total/uint64(m.k) {
		t.Fatalf("%d rows, %d events, floor %d; want at most %d, %d, at most %d", len(rows), l.Total(), floor, m.k, total, total/uint64(m.k))
	}
	for n, last := range m.last {
		r, listed := rows[string(textOf(n))]
		all := m.denied[n] + m.near[n]
		if !listed {
			if all > floor || all > total/uint64(m.k) {
				t.Errorf("caller %d came %d of %d times and is not in a list of %d, whose floor is %d", n, all, total, m.k, floor)
			}
			continue
		}
		delete(rows, r.Text)
		if sure := r.Denied + r.Near; sure == 0 || sure > all || all > sure+r.Error || r.Denied > m.denied[n] || r.Near > m.near[n] {
			t.Errorf("caller %d came %d+%d times; listed with %d+%d, error %d", n, m.denied[n], m.near[n], r.Denied, r.Near, r.Error)
		}
		if r.Key != keyOf(n) || r.Last != last.At || r.Free != last.Free || r.Trial != last.Trial || r.First > r.Last || r.Error > total/uint64(m.k) {
			t.Errorf("caller %d last came with %+v; listed as %+v", n, last, r)
		}
	}
	if len(rows) > 0 {
		t.Errorf("listed, but never came: %v", rows)
	}
	if bytes := l.Bytes(); bytes > MaxBytes(m.k) {
		t.Errorf("%d bytes, at most %d were stated", bytes, MaxBytes(m.k))
	}
	m.checkParts(t)
}

func (m *truth) checkParts(t *testing.T) {
	t.Helper()
	l := m.list
	held := 0
	for _, s := range l.index {
		if s.entry != 0 {
			held++
		}
	}
	if held != len(l.entries) || len(l.heap) != len(l.entries) {
		t.Fatalf("%d entries, %d in the index, %d in the heap", len(l.entries), held, len(l.heap))
	}
	for i := range l.entries {
		e := &l.entries[i]
		at := l.find(e.key)
		if at < 0 || l.index[at].entry != int32(i)+1 {
			t.Fatalf("the index does not lead to entry %d", i)
		}
		node := l.heap[e.pos]
		if node.entry != int32(i) || node.count != e.denied+e.near+e.error {
			t.Fatalf("entry %d of %d+%d+%d is %+v in the heap", i, e.denied, e.near, e.error, node)
		}
		if e.pos > 0 && l.heap[(e.pos-1)/4].count > node.count {
			t.Fatalf("the heap is out of order at %d", e.pos)
		}
	}
	for i, c := range l.cells {
		if c > l.floor() {
			t.Fatalf("cell %d holds %d, above the floor %d", i, c, l.floor())
		}
	}
}

// streams are who comes, event by event: some as the world is, some made to
// hurt.
var streams = map[string]func(rng *rand.Rand, k int) func(i int) uint64{
	"zipf": func(rng *rand.Rand, k int) func(int) uint64 {
		z := rand.NewZipf(rng, 1.1, 1, uint64(20*k))
		return func(int) uint64 { return z.Uint64() }
	},
	"uniform over twice the room": func(rng *rand.Rand, k int) func(int) uint64 {
		return func(int) uint64 { return rng.Uint64N(uint64(2 * k)) }
	},
	"one more than fits, in turn": func(_ *rand.Rand, k int) func(int) uint64 {
		return func(i int) uint64 { return uint64(i % (k + 1)) }
	},
	"nobody twice": func(*rand.Rand, int) func(int) uint64 {
		return func(i int) uint64 { return uint64(i) }
	},
	"one among a flood": func(_ *rand.Rand, k int) func(int) uint64 {
		return func(i int) uint64 {
			if i%k == 0 {
				return 1 << 40
			}
			return uint64(i)
		}
	},
	"runs, each longer": func(*rand.Rand, int) func(int) uint64 {
		who, left := uint64(0), 1
		return func(int) uint64 {
			if left == 0 {
				who++
				left = int(who) + 1
			}
			left--
			return who
		}
	},
	"full first, then others": func(rng *rand.Rand, k int) func(int) uint64 {
		return func(i int) uint64 {
			if i < 1500 {
				return uint64(i % k)
			}
			return uint64(k) + rng.Uint64N(uint64(k))
		}
	},
}

func TestPromisesHoldForEveryStream(t *testing.T) {
	for name, stream := range streams {
		for _, k := range []int{1, 2, 3, 10, 16, 17, 100} {
			t.Run(fmt.Sprintf("%s, k %d", name, k), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(uint64(k), uint64(len(name))))
				m, next := newTruth(k), stream(rng, k)
				for i := range 3000 {
					m.add(next(i), rng.IntN(4) > 0)
					if i%997 == 0 {
						m.check(t)
					}
				}
				m.check(t)
			})
		}
	}
}

func TestWithRoomForAllCountsAreExact(t *testing.T) {
	m := newTruth(50)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		m.add(rng.Uint64N(50), rng.IntN(2) == 0)
	}
	for _, r := range m.list.Top(50) {
		if r.Error != 0 {
			t.Errorf("%s has error %d", r.Text, r.Error)
		}
	}
	m.check(t)
}

// TestCollidingKeys crowds all keys into few places of the index and few
// cells, as chance may.
func TestCollidingKeys(t *testing.T) {
	const k = 8
	l := New(k)
	counts := map[Key]uint64{}
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 4000 {
		key := Key{(rng.Uint64N(3)+14)<<32 | rng.Uint64N(3), rng.Uint64N(3)}
		counts[key]++
		feed(l, key, Event{Denied: true, At: int64(i)}, func() []byte { return fmt.Append(nil, key) })
		(&truth{list: l}).checkParts(t)
	}
	if len(counts) <= k {
		t.Fatalf("only %d keys", len(counts))
	}
	for _, r := range l.Top(k) {
		if n := counts[r.Key]; r.Denied > n || n > r.Denied+r.Error {
			t.Errorf("%v came %d times; listed with %d, error %d", r.Key, n, r.Denied, r.Error)
		}
	}
}

func TestTopIsSortedAndCut(t *testing.T) {
	l := New(10)
	for n, times := range map[uint64][2]int{1: {5, 0}, 2: {7, 0}, 3: {0, 20}, 4: {5, 1}, 5: {5, 0}} {
		for i := range times[0] + times[1] {
			feed(l, keyOf(n), Event{Denied: i < times[0]}, func() []byte { return textOf(n) })
		}
	}
	var got []string
	for _, r := range l.Top(4) {
		got = append(got, r.Text)
	}
	if want := "client.ip=2 client.ip=4 client.ip=1 client.ip=5"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", got, want)
	}
	for n, want := range map[int]int{-1: 0, 0: 0, 1: 1, 5: 5, 1 << 40: 5} {
		if got := len(l.Top(n)); got != want {
			t.Errorf("the first %d are %d, want %d", n, got, want)
		}
	}
	if got := New(5).Top(3); len(got) != 0 {
		t.Errorf("an unused list has %v", got)
	}
}

func TestNumberOfKeysIsBounded(t *testing.T) {
	for k, want := range map[int]int{-5: 1, 0: 1, 1: 1, 1000: 1000, MaxKeys: MaxKeys, 1 << 40: MaxKeys} {
		if got := New(k).k; got != want {
			t.Errorf("New(%d) holds %d keys, want %d", k, got, want)
		}
	}
}

func TestTimes(t *testing.T) {
	l := New(1)
	for _, ev := range []Event{{At: 10, Free: 15}, {At: 30, Free: 99, Trial: true}, {At: 20, Free: 20}} {
		feed(l, keyOf(1), ev, func() []byte { return textOf(1) })
	}
	if r := l.Top(1)[0]; r.First != 10 || r.Last != 30 || r.Free != 99 || !r.Trial {
		t.Errorf("%+v; want what came at 30, which is the last", r)
	}
	feed(l, keyOf(2), Event{At: -5, Free: -4}, func() []byte { return textOf(2) })
	for range 5 {
		feed(l, keyOf(2), Event{At: -3, Free: -2}, func() []byte { return textOf(2) })
	}
	if r := l.Top(1)[0]; r.Text != "client.ip=2" || r.First != -3 || r.Last != -3 || r.Free != -2 || r.Error != 3 || r.Near != 3 {
		t.Errorf("%+v; want caller 2 since it entered, with nothing of caller 1 but the error", r)
	}
}

func TestLongTextsAreCutAndMarked(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"short":         {"client.ip=192.0.2.1", "client.ip=192.0.2.1"},
		"none":          {"", ""},
		"just fits":     {strings.Repeat("a", 256), strings.Repeat("a", 256)},
		"one too many":  {strings.Repeat("a", 257), strings.Repeat("a", 253) + "…"},
		"within a rune": {strings.Repeat("a", 251) + "€€€", strings.Repeat("a", 251) + "…"},
		"no text":       {strings.Repeat("\x80", 300), strings.Repeat("\x80", 249) + "…"},
	} {
		l := New(1)
		feed(l, keyOf(1), Event{}, func() []byte { return []byte(tt.text) })
		got := l.Top(1)[0].Text
		if got != tt.want || len(got) > MaxText || utf8.ValidString(tt.text) && !utf8.ValidString(got) {
			t.Errorf("%s: %q (%d bytes)", name, got, len(got))
		}
	}
}

func TestMemoryIsFlatUnderAFlood(t *testing.T) {
	const k = 100
	l := New(k)
	long := []byte(strings.Repeat("x", 1000))
	flood := func(from, to uint64) {
		for n := from; n < to; n++ {
			feed(l, keyOf(n), Event{Denied: true}, func() []byte { return long })
		}
	}
	flood(0, 100_000)
	full := l.Bytes()
	if full > MaxBytes(k) || full < k*MaxText {
		t.Fatalf("%d bytes; at most %d were stated, and %d are text", full, MaxBytes(k), k*MaxText)
	}
	flood(100_000, 300_000)
	if got := l.Bytes(); got != full {
		t.Errorf("grew from %d to %d bytes", full, got)
	}
	if got := New(MaxKeys).Bytes(); got != 0 {
		t.Errorf("%d bytes before any use", got)
	}
}

func TestTextsOfAnyLengthStayWithinTheBound(t *testing.T) {
	for n := range 2 * MaxText {
		l := New(1)
		l.Enter(keyOf(1), Event{}, make([]byte, n))
		if got := l.Bytes(); got > MaxBytes(1) {
			t.Errorf("a text of %d bytes: %d bytes, at most %d were stated", n, got, MaxBytes(1))
		}
	}
}

func TestStatedBytes(t *testing.T) {
	for k, want := range map[int]int64{1000: 408 << 10, MaxKeys: 42 << 20} {
		if got := MaxBytes(k); got > want || got < want*19/20 {
			t.Errorf("%d keys: %d bytes; the documentation says %d", k, got, want)
		}
	}
	if entryBytes+nodeBytes != 112 {
		t.Errorf("an entry takes %d bytes; the documentation says 112 beside its text", entryBytes+nodeBytes)
	}
}

// TestReadersAndWriters reads while keys come and go: who stays is there
// once, every time, and never with less than before.
func TestReadersAndWriters(t *testing.T) {
	const k, writers, each = 100, 4, 5_000
	l := New(k)
	heavy := keyOf(1 << 50)
	for range each {
		feed(l, heavy, Event{Denied: true}, func() []byte { return []byte("heavy") })
	}
	var wg sync.WaitGroup
	for w := range uint64(writers) {
		wg.Go(func() {
			for i := range uint64(each) {
				n := w<<32 + i
				if i%2 == 0 {
					n = 1<<49 + i%(4*k) // comes back, and so in and out
				}
				feed(l, keyOf(n), Event{Denied: true, At: int64(i)}, func() []byte { return textOf(n) })
				feed(l, heavy, Event{Denied: true, At: int64(i)}, func() []byte { return []byte("heavy") })
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	before := uint64(0)
	for open := true; open; {
		select {
		case <-done:
			open = false
		default:
		}
		seen := map[Key]bool{}
		for _, r := range l.Top(k) {
			if seen[r.Key] {
				t.Fatalf("%s is there twice", r.Text)
			}
			seen[r.Key] = true
			if r.Key == heavy {
				if r.Denied < before || r.Error != 0 {
					t.Fatalf("%d denials after %d, error %d", r.Denied, before, r.Error)
				}
				before = r.Denied
			}
		}
		if !seen[heavy] {
			t.Fatal("whoever came most is not there")
		}
	}
	if want := uint64((writers + 1) * each); before != want {
		t.Errorf("%d events of one key, want %d", before, want)
	}
	if want := uint64((2*writers + 1) * each); l.Total() != want {
		t.Errorf("%d events, want %d", l.Total(), want)
	}
	(&truth{list: l}).checkParts(t)
}

func TestCountingAllocatesNothing(t *testing.T) {
	l := New(100)
	text := textOf(123456)
	n := uint64(0)
	flood := func() {
		n++
		if !l.Count(keyOf(n), Event{Denied: true}) {
			l.Enter(keyOf(n), Event{Denied: true}, text)
		}
	}
	for range 1000 {
		flood()
	}
	if got := testing.AllocsPerRun(10_000, flood); got != 0 {
		t.Errorf("%v allocations for a key that comes once", got)
	}
	l.Enter(keyOf(1<<40), Event{}, text)
	if got := testing.AllocsPerRun(1000, func() { l.Count(keyOf(1<<40), Event{Denied: true}) }); got != 0 {
		t.Errorf("%v allocations for a key that is known", got)
	}
}

// FuzzList takes each byte pair as one event: who came, and how.
func FuzzList(f *testing.F) {
	f.Add(uint8(1), []byte{1, 0, 2, 1, 1, 0, 3, 0})
	f.Add(uint8(3), []byte("abcdabcdaabbccddeeffgghhaabbccddeeffgghh"))
	f.Add(uint8(16), []byte(strings.Repeat("the quick brown fox jumps over the lazy dog", 10)))
	f.Fuzz(func(t *testing.T, k uint8, events []byte) {
		m := newTruth(max(1, int(k)))
		for len(events) >= 2 {
			ev := binary.LittleEndian.Uint16(events)
			m.add(uint64(ev>>1), ev&1 == 1)
			events = events[2:]
		}
		m.check(t)
	})
}
