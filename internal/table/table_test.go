package table

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// check holds a shard against what must always be so.
func (s *Shard) check() error {
	seen := map[uint64]bool{}
	for i, e := range s.entries {
		if e.Tag == unused {
			continue
		}
		if seen[e.Tag] {
			return fmt.Errorf("tag %x twice", e.Tag)
		}
		seen[e.Tag] = true
		if found := s.Find(e.Tag, e.Tag*s.table.n); found != i {
			return fmt.Errorf("tag %x at %d is found at %d", e.Tag, i, found)
		}
	}
	if len(seen) != int(s.held) || s.held > s.cap {
		return fmt.Errorf("%d entries, %d counted, cap %d", len(seen), s.held, s.cap)
	}
	return nil
}

// A model is a table without bounds.
type model struct {
	t    *testing.T
	r    *rand.Rand
	tab  *Table
	now  int64
	live map[uint64]Entry // with the stamp in A's place for a table with a TTL
	due  map[uint64]int64
}

func (m *model) prune() {
	for tag, due := range m.due {
		if due <= m.now {
			delete(m.due, tag)
			delete(m.live, tag)
		}
	}
}

// step charges one key and fails unless the table says what the model does.
func (m *model) step(tag uint64) {
	s, at := m.tab.Shard(tag)
	s.Lock()
	defer s.Unlock()
	now := s.Advance(m.now)
	m.prune()
	i := s.Find(tag, at)
	want, live := m.live[tag]
	if live && (i < 0 || s.entries[i] != want) {
		m.t.Fatalf("tag %x: live and not found as it was", tag)
	}
	a := now + 1 + m.r.Int64N(1000)
	if i < 0 {
		if !s.Room(tag, now, 0) {
			if m.tab.n == 1 && len(m.live) < int(s.cap) {
				m.t.Fatalf("no room at %d of %d live", len(m.live), s.cap)
			}
			return
		}
		if m.tab.n == 1 && len(m.live) >= int(s.cap) {
			m.t.Fatalf("room at %d of %d live", len(m.live), s.cap)
		}
		i = s.Put(tag, now)
	}
	s.Set(i, a, m.r.Uint64(), a)
	m.live[tag] = s.entries[i]
	m.due[tag] = a
	if ttl := int64(m.tab.options.TTL); ttl > 0 {
		m.due[tag] = min(a, now+ttl)
	}
	if m.r.IntN(10) == 0 {
		if err := s.check(); err != nil {
			m.t.Fatal(err)
		}
	}
}

func TestModel(t *testing.T) {
	for _, cap := range []int{1, 2, 3, 7, 8, 9, 17, 30, 100, 400} {
		for _, ttl := range []time.Duration{0, 300} {
			t.Run(fmt.Sprintf("cap %d, ttl %d", cap, ttl), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(5 + 100/cap) {
					m := &model{t: t, r: rand.New(rand.NewPCG(seed, 1)), tab: New(Options{Cap: cap, TTL: ttl}), live: map[uint64]Entry{}, due: map[uint64]int64{}}
					keys := make([]uint64, 2*cap+2)
					for i := range keys {
						keys[i] = Tag(m.r.Uint64())
					}
					for range 1000 {
						// Crowds and quiet take turns, so that all is
						// full, expires, grows and shrinks again.
						switch m.r.IntN(40) {
						case 0:
							m.now += m.r.Int64N(2000)
						case 1:
							m.tab.nextLook.Store(0)
							m.tab.Look(m.now)
						case 2:
							m.drop(keys[m.r.IntN(len(keys))])
						default:
							m.now += m.r.Int64N(3)
						}
						m.step(keys[m.r.IntN(len(keys))])
					}
				}
			})
		}
	}
}

func (m *model) drop(tag uint64) {
	s, at := m.tab.Shard(tag)
	if i := s.Find(tag, at); i >= 0 {
		s.Drop(i)
		delete(m.live, tag)
		delete(m.due, tag)
	}
}

// A table that judges states by a function of its own: B is the instant.
func TestDue(t *testing.T) {
	version := uint32(1)
	shift := int64(0)
	due := func(_ int64, b uint64, _ int64) int64 { return int64(b) + shift }
	tab := New(Options{Cap: 2, Due: func() (Due, uint32) { return due, version }})
	s, _ := tab.Shard(5)
	for _, tag := range []uint64{5, 6} {
		s.Set(s.Put(tag, 0), 0, 100, 100)
	}
	if s.Room(7, 50, 0) {
		t.Fatal("room while two of two are live")
	}
	shift, version = -60, 2
	if !s.Room(7, 50, 0) {
		t.Fatal("no room though a new version frees both")
	}
	if s.held != 0 {
		t.Fatalf("%d held, want 0", s.held)
	}
}

func TestEvictsTheNearestToNew(t *testing.T) {
	tab := New(Options{Cap: 3})
	s, _ := tab.Shard(5)
	for i, tag := range []uint64{5, 6, 7} {
		s.Set(s.Put(tag, 0), 100-int64(i), 1, 100-int64(i))
	}
	s.Set(s.Put(8, 0), 500, 1, 500)
	if i := s.Find(7, 7); i >= 0 || s.held != 3 || s.evicted != 1 {
		t.Fatalf("7 at %d, %d held, %d evicted; want it gone, 3, 1", i, s.held, s.evicted)
	}
	if err := s.check(); err != nil {
		t.Fatal(err)
	}
}

// Eviction keeps the cap whatever sets the keys fall into.
func TestEvictionHoldsTheCap(t *testing.T) {
	for _, cap := range []int{1, 5, 8, 13, 40, 200} {
		r := rand.New(rand.NewPCG(uint64(cap), 2))
		tab := New(Options{Cap: cap})
		for n := range int64(5000) {
			tag := Tag(r.Uint64())
			s, _ := tab.Shard(tag)
			i := s.Put(tag, n)
			s.Set(i, n+1e6+r.Int64N(1000), 1, n+1e6)
			if err := s.check(); n%500 == 0 && err != nil {
				t.Fatal(err)
			}
		}
		if st := tab.Stats(); st.Held != cap || st.Evicted != uint64(5000-cap) {
			t.Errorf("cap %d: %+v", cap, st)
		}
	}
}

// fill puts n fresh keys into a table, live until due, and returns the most
// bytes it had while it grew, both copies of the moving shard counted.
func fill(tab *Table, n int, due int64, each func(held int, bytes int64)) {
	r := rand.New(rand.NewPCG(3, 3))
	bytes := int64(0)
	for k := range n {
		tag := Tag(r.Uint64())
		s, _ := tab.Shard(tag)
		if !s.Room(tag, 0, 0) {
			continue
		}
		before := cap(s.entries)
		s.Set(s.Put(tag, 0), due, 1, due)
		if after := cap(s.entries); after != before {
			both := bytes + int64(after)*entryBytes
			bytes += int64(after-before) * entryBytes
			each(k+1, both)
		}
	}
}

func TestBytesPerKey(t *testing.T) {
	const n = 1 << 16
	tab := New(Options{Cap: n})
	worst, least := 0.0, 1.0
	fill(tab, n-n/16, 1, func(held int, bytes int64) {
		if held > 1<<12 {
			worst = max(worst, float64(bytes)/float64(held))
		}
	})
	for i := range tab.shards {
		s := &tab.shards[i]
		if len(s.entries) < s.full() {
			least = min(least, float64(s.held)/float64(len(s.entries)))
		}
	}
	st := tab.Stats()
	perCap := float64(st.Bytes) / float64(st.Cap)
	t.Logf("worst while growing %.1f B a key, %.1f a key of the cap, least fill %.2f", worst, perCap, least)
	if worst > 48 {
		t.Errorf("%.1f bytes a key while growing, want at most 48", worst)
	}
	if perCap > 32 {
		t.Errorf("%.1f bytes a key of the cap, want at most 32", perCap)
	}
}

// How full a shard is when it moves: what the bytes while growing rest on.
func TestFillBeforeMove(t *testing.T) {
	for _, n := range []int{100, 1000, 4096} {
		tab := New(Options{Cap: n})
		fill(tab, n, 1, func(held int, bytes int64) {
			if held > 200 {
				before := smaller(len(tab.shards[0].entries))
				if fill := float64(held-1) / float64(before); fill < 0.8 {
					t.Errorf("moved on from %d places at a fill of %.2f", before, fill)
				} else {
					t.Logf("moved on from %d places at a fill of %.2f", before, fill)
				}
			}
		})
	}
}

// No step may cost more than a fixed number of looks and one move.
func TestWorkIsBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, cap := range []int{50, 1000, 2 * 4096} {
		tab := New(Options{Cap: cap})
		probes := uint64(handStep + 2*setSize*setSize)
		if tab.n == 1 {
			probes = uint64(tab.shards[0].full() + 2*setSize*setSize)
		}
		now := int64(0)
		for range 3 * cap {
			now += r.Int64N(1000)
			tag := Tag(r.Uint64())
			s, at := tab.Shard(tag)
			before, moves := s.probed, tab.moves.Load()
			s.Advance(now)
			if s.Find(tag, at) < 0 && s.Room(tag, now, 0) {
				due := now + r.Int64N(int64(cap)*1500)
				s.Set(s.Put(tag, now), due, 1, due)
			}
			if n := s.probed - before; n > probes && tab.moves.Load() == moves {
				t.Fatalf("cap %d: looked at %d entries, want at most %d", cap, n, probes)
			}
			if n := tab.moves.Load() - moves; n > 1 {
				t.Fatalf("cap %d: moved %d shards in one step", cap, n)
			}
		}
	}
}

func TestLookGivesBack(t *testing.T) {
	tab := New(Options{Cap: 3 * 4096})
	full := tab.Stats().Bytes
	fill(tab, 10000, 1000, func(int, int64) {})
	grown := tab.Stats().Bytes
	now := int64(2000)
	for range tab.shards {
		before := tab.moves.Load()
		tab.Look(now)
		if n := tab.moves.Load() - before; n > 1 {
			t.Fatalf("%d shards moved in one look", n)
		}
		tab.Look(now + 1) // too soon: does nothing
		now += lookEvery
	}
	if st := tab.Stats(); st.Held != 0 || st.Bytes != full {
		t.Errorf("%d held, %d bytes of %d; want 0 and %d", st.Held, st.Bytes, grown, full)
	}
}

func TestTag(t *testing.T) {
	seen := map[uint64]bool{}
	for _, digest := range []uint64{0, 1, 1 << 63, ^uint64(0)} {
		tag := Tag(digest)
		if tag == unused || seen[tag] {
			t.Errorf("Tag(%x) = %x", digest, tag)
		}
		seen[tag] = true
	}
}

// With many shards the cap is each shard's; no live entry is lost all the same.
func TestModelOfManyShards(t *testing.T) {
	const cap = 2*ShardKeys + 100
	r := rand.New(rand.NewPCG(4, 4))
	tab := New(Options{Cap: cap})
	live := map[uint64]Entry{}
	now := int64(0)
	refused := 0
	for range 20 * cap {
		now += r.Int64N(40)
		if r.IntN(2*cap) == 0 {
			now += r.Int64N(1e6) // a quiet, after which all is as new
		}
		tag := Tag(uint64(r.Int64N(2*cap)) * 0x9e3779b97f4a7c15)
		s, at := tab.Shard(tag)
		s.Lock()
		s.Advance(now)
		i := s.Find(tag, at)
		if want, ok := live[tag]; ok && want.A > now && (i < 0 || s.entries[i] != want) {
			t.Fatalf("tag %x: live and not found as it was", tag)
		}
		if i < 0 && s.Room(tag, now, 0) {
			i = s.Put(tag, now)
		}
		if i >= 0 {
			due := now + 1 + r.Int64N(200*cap)
			s.Set(i, due, r.Uint64(), due)
			live[tag] = s.entries[i]
		} else {
			refused++
		}
		s.Unlock()
		tab.nextLook.Store(now + r.Int64N(100))
		tab.Look(now)
	}
	held := 0
	for i := range tab.shards {
		if err := tab.shards[i].check(); err != nil {
			t.Error(err)
		}
		held += int(tab.shards[i].held)
	}
	st := tab.Stats()
	if refused == 0 || st.Evicted != 0 || st.Held != held || held > cap || st.Moves < 10 {
		t.Errorf("%d refused, %+v", refused, st)
	}
}

// Nothing that Expect finds can do harm: an empty shard, or one that moves.
func TestExpect(t *testing.T) {
	tab := New(Options{Cap: 1 << 14})
	var asking sync.WaitGroup
	for g := range uint64(2) {
		asking.Go(func() {
			for i := range uint64(1 << 14) {
				tag := Tag((i*2 + g) * 0x9e3779b97f4a7c15)
				s, at := tab.Shard(tag)
				s.Expect(tag, at)
				s.Lock()
				if s.Find(tag, at) < 0 && !s.Full(0) {
					s.Set(s.Put(tag, 0), 1, 1, 1)
				}
				s.Unlock()
			}
		})
	}
	asking.Wait()
	if held := tab.Stats().Held; held < 1<<13 {
		t.Errorf("held %d keys", held)
	}
}
