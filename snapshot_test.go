package spillgate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func snapshotOf(t testing.TB, s interface{ Snapshot(io.Writer) error }) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Snapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Whoever was limited when the process ended is limited until the instant at
// which it would have been anyway, however long nobody was there.
func TestRestartKeepsTime(t *testing.T) {
	for _, text := range []string{"10/min burst 10", "5/min queue 4", "10/h fixed", "10/calendar hour", "10/min sliding", "10/min log", "2 at once for 90s", "0/s burst 10"} {
		for _, away := range []time.Duration{0, time.Second, 40 * time.Second, 2 * time.Hour} {
			t.Run(fmt.Sprint(text, " after ", away), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(12*time.Minute + 34567) // not at the edge of a window
					stays := Must(text, TTL(3*time.Minute))
					defer stays.Close()
					for range 3 {
						stays.Take("a", 1)
						stays.Take("b", 2)
						time.Sleep(700 * time.Millisecond)
					}
					for stays.Take("a", 1).Allowed {
					}
					file := snapshotOf(t, stays)
					time.Sleep(away)
					back := Must(text, TTL(3*time.Minute))
					defer back.Close()
					if err := back.Restore(bytes.NewReader(file)); err != nil {
						t.Fatal(err)
					}
					for range 20 {
						for _, key := range []string{"a", "b", "c"} {
							got, want := back.Take(key, 1), stays.Take(key, 1)
							got.Slot, want.Slot = 0, 0
							if got != want {
								t.Fatalf("%s is told\n     %+v\nwant %+v", key, got, want)
							}
						}
						time.Sleep(stays.Peek("a").ResetAfter / 7)
					}
				})
			})
		}
	}
}

// While a wall clock is set back nothing is earned; what was is not lost.
func TestRestartUnderAnEarlierClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, text := range []string{"10/min burst 10", "10/h fixed", "10/min sliding", "10/min log"} {
			before := Must(text)
			for before.Take("a", 1).Allowed {
			}
			want := before.Take("a", 1)
			for _, back := range []time.Duration{time.Nanosecond, time.Hour, 30 * 365 * 24 * time.Hour} {
				after := Must(text)
				if err := after.memory.restore(bytes.NewReader(snapshotOf(t, before)), time.Now().Add(-back), nil); err != nil {
					t.Fatal(err)
				}
				after.memory.base = time.Now()
				if got := after.Take("a", 1); got != want {
					t.Errorf("%s, set back by %s:\n got %+v\nwant %+v", text, back, got, want)
				}
				after.Close()
			}
			before.Close()
		}
	})
}

// A limit that is another one after a restart: what was earned up to then counts
// under the old numbers, as if it had been changed while running.
func TestRestartUnderAnotherLimit(t *testing.T) {
	for _, c := range [][2]string{
		{"10/min burst 10", "60/min burst 10"}, {"10/min burst 10", "10/min burst 30"}, {"10/min burst 10", "10/min burst 30 fill"},
		{"10/min burst 10", "10/min burst 4"}, {"10/h fixed", "20/h fixed"}, {"10/min sliding", "10/30s sliding"},
		{"10/min log", "20/5min log"}, {"5/min queue 4", "10/min queue 9"}, {"10/min burst 10", "10/min log"}, {"10/min burst 10", "unlimited"},
	} {
		t.Run(c[0]+" to "+c[1], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stays := Must(c[0])
				defer stays.Close()
				for stays.Take("a", 1).Allowed {
				}
				stays.Take("b", 3)
				file := snapshotOf(t, stays)
				time.Sleep(20 * time.Second)
				to, err := ParseLimit(c[1])
				if err != nil {
					t.Fatal(err)
				}
				if err := stays.SetLimit(to); err != nil {
					t.Fatal(err)
				}
				back := Must(c[1])
				defer back.Close()
				if err := back.Restore(bytes.NewReader(file)); err != nil {
					t.Fatal(err)
				}
				for i := range 15 {
					for _, key := range []string{"a", "b", "new", fmt.Sprint("never seen until ", i)} {
						if got, want := back.Take(key, 1), stays.Take(key, 1); got != want {
							t.Fatalf("%s is told\n     %+v\nwant %+v", key, got, want)
						}
					}
					// Changes that were under way are not forgotten by the next restart.
					again := Must(c[1])
					if err := again.Restore(bytes.NewReader(snapshotOf(t, back))); err != nil {
						t.Fatal(err)
					}
					back.Close()
					back = again
					time.Sleep(2 * time.Second)
				}
			})
		})
	}
}

// manyKinds is a memory with something of everything, at times of its own.
func manyKinds(t testing.TB) *Memory {
	mem := NewMemory()
	for i, text := range []string{"2/10s burst 4", "3/10s queue 2", "5/20s fixed", "2/calendar day in Europe/Berlin", "4/min sliding", "3/min log", "3 at once for 15s"} {
		sp, err := NewSpace(text, SpaceOptions{MaxKeys: 2, TTL: time.Duration(i%2) * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		m := mustMeter(t, text)
		for k := range uint64(4) { // the last two overflow
			takeAll(t, mem, Instant(1e18)+Instant(i), Charge{Space: sp, Key: Key{k << 60, k}, Meter: m, Ask: Ask{N: 1}})
		}
		l := m.limit
		l.Rate++
		to, err := l.Meter()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sp.Change(m, to, 1e18+100); err != nil {
			t.Fatal(err)
		}
	}
	return mem
}

// A file that was cut off anywhere, or in which any byte is another one, is
// refused with the same error, and nothing of it is used.
func TestTornSnapshot(t *testing.T) {
	whole := snapshotOf(t, manyKinds(t))
	if len(whole) > 8000 {
		t.Fatalf("%d bytes are too many for a test of each", len(whole))
	}
	mem := NewMemory()
	refused := func(what string, b []byte) {
		t.Helper()
		err := mem.Restore(bytes.NewReader(b))
		if !errors.Is(err, ErrSnapshot) || !strings.Contains(err.Error(), "start empty") {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for i := range whole {
		refused(fmt.Sprintf("cut off after %d bytes", i), whole[:i])
		for _, bits := range []byte{0x01, 0x80} {
			b := bytes.Clone(whole)
			b[i] ^= bits
			refused(fmt.Sprintf("byte %d changed by %x", i, bits), b)
		}
	}
	refused("with more behind", append(bytes.Clone(whole), 0))
	refused("twice", append(bytes.Clone(whole), whole...))
	later := bytes.Clone(whole)
	later[len(snapshotName)] = 2
	if err := mem.Restore(bytes.NewReader(later)); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("a later version: %v", err)
	}
	if err := mem.Restore(strings.NewReader("rules: [{name: a, limit: 10/s}]\n")); err == nil || !strings.Contains(err.Error(), "another program's") {
		t.Errorf("another file: %v", err)
	}
	if err := mem.Restore(bytes.NewReader(whole)); err != nil { // none of all that is left
		t.Errorf("the whole one: %v", err)
	}
	if again := snapshotOf(t, mem); len(again) != len(whole) {
		t.Errorf("what nobody used yet is written again: %d bytes, want %d", len(again), len(whole))
	}
}

// A reader's own errors are told as such.
func TestRestoreReaderFails(t *testing.T) {
	fails := errors.New("the disk is gone")
	whole := snapshotOf(t, manyKinds(t))
	for _, n := range []int{0, 10, 30, len(whole)} {
		err := NewMemory().Restore(io.MultiReader(bytes.NewReader(whole[:n]), errReader{fails}))
		if !errors.Is(err, fails) || errors.Is(err, ErrSnapshot) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	lim := Must("1/s")
	for n := range 3 {
		if err := lim.Snapshot(&errWriter{n, fails}); !errors.Is(err, fails) {
			t.Errorf("writing: %v", err)
		}
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

type errWriter struct {
	left int
	err  error
}

func (w *errWriter) Write(b []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, w.err
	}
	return len(b), nil
}

func TestRestoreComesFirst(t *testing.T) {
	file := snapshotOf(t, Must("1/s"))
	used := Must("1/s")
	used.Take("a", 1)
	digests := NewMemory()
	digests.Seed()
	twice := NewMemory()
	if err := twice.Restore(bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*Memory{"used": used.memory, "its seed is known": digests, "restored": twice} {
		if err := m.Restore(bytes.NewReader(file)); !errors.Is(err, ErrInUse) {
			t.Errorf("%s: %v", name, err)
		}
	}
	used.Close()
	if err := used.Restore(bytes.NewReader(file)); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := used.Snapshot(io.Discard); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := Must("1/s").Restore(bytes.NewReader(snapshotOf(t, manyKinds(t)))); !errors.Is(err, ErrSnapshot) {
		t.Errorf("a memory's in a limiter: %v", err)
	}
}

func TestSpacesOfOneNameAreToldApartByNobody(t *testing.T) {
	mem, m := NewMemory(), mustMeter(t, "1/s")
	a, b := mustSpace(t, SpaceOptions{}), mustSpace(t, SpaceOptions{})
	for _, sp := range []*Space{a, b} {
		takeAll(t, mem, 1e9, Charge{Space: sp, Meter: m, Ask: Ask{N: 1}})
	}
	if err := mem.Snapshot(io.Discard); err == nil || !strings.Contains(err.Error(), `two spaces are named "space"`) {
		t.Errorf("two: %v", err)
	}
	mem.Drop(a)
	if err := mem.Snapshot(io.Discard); err != nil {
		t.Errorf("one: %v", err)
	}
}

// The seed comes back, so that keys are found; the file is its owner's alone,
// and nothing is left beside it, also where writing fails.
func TestSnapshotFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	lim := Must("2/h")
	defer lim.Close()
	lim.Take("a", 2)
	for range 2 { // also over an older one
		if err := lim.SnapshotFile(path); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	back := Must("2/h")
	if err := back.RestoreFile(path); err != nil || back.Take("a", 1).Allowed || !back.Take("b", 1).Allowed {
		t.Errorf("restored: %v", err)
	}
	lim.Close()
	if err := lim.SnapshotFile(path); !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), path) {
		t.Errorf("closed: %v", err)
	}
	if err := back.SnapshotFile(filepath.Join(dir, "no", "such")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%d files, want one: %v", len(entries), err)
	}
	fresh := Must("2/h")
	if err := fresh.RestoreFile(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
	if err := os.Truncate(path, info.Size()-1); err != nil {
		t.Fatal(err)
	}
	if err := fresh.RestoreFile(path); !errors.Is(err, ErrSnapshot) || !strings.Contains(err.Error(), path) {
		t.Errorf("torn: %v", err)
	}
	if err := fresh.RestoreFile(dir); err == nil || errors.Is(err, ErrSnapshot) {
		t.Errorf("a directory: %v", err)
	}
}

// The cap may be another one after a restart: nobody who is limited is dropped.
func TestRestartUnderAnotherCap(t *testing.T) {
	const keys = 3 * 4096
	before := Must("1/h", MaxKeys(keys*2))
	defer before.Close()
	for k := range keys {
		before.Take(fmt.Sprint(k), 1)
	}
	file := snapshotOf(t, before)
	for _, most := range []int{1, 100, 5000, keys, keys * 2, 1 << 20} {
		for _, full := range []AtCap{Overflow, MakeRoom} {
			after := Must("1/h", MaxKeys(most), WhenFull(full))
			if err := after.Restore(bytes.NewReader(file)); err != nil {
				t.Fatal(err)
			}
			if n := after.Stats().Live; n != before.Stats().Live {
				t.Errorf("cap %d: %d keys, want %d", most, n, before.Stats().Live)
			}
			for k := range keys {
				if after.Take(fmt.Sprint(k), 1).Allowed {
					t.Fatalf("cap %d: key %d passes", most, k)
				}
			}
			if d := after.Take("new", 1); most != keys && d.Overflow != (full == Overflow && most < keys) {
				t.Errorf("cap %d: a newcomer: %+v", most, d)
			}
			after.Close()
		}
	}
}

// What nobody uses any more is kept until it is as new, and no longer; so is
// what is used.
func TestSnapshotForgetsWhatIsAsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := NewMemory()
		take := func(mem *Memory, name, limit string) Decision {
			sp, err := NewSpace(name, SpaceOptions{})
			if err != nil {
				t.Fatal(err)
			}
			out := make([]Decision, 1)
			if err := mem.Take(context.Background(), time.Time{}, []Charge{{Space: sp, Key: Key{9, 9}, Meter: mustMeter(t, limit), Ask: Ask{N: 1}}}, out); err != nil {
				t.Fatal(err)
			}
			return out[0]
		}
		for name, limit := range map[string]string{"short": "1/min", "long": "1/h", "log": "1/h log", "sliding": "1/h sliding"} {
			take(mem, name, limit)
		}
		empty := len(snapshotOf(t, NewMemory()))
		sizes := []int{len(snapshotOf(t, mem))}
		for _, d := range []time.Duration{0, 61 * time.Second, time.Hour - time.Minute, 2 * time.Hour} {
			time.Sleep(d)
			next := NewMemory()
			if err := next.Restore(bytes.NewReader(snapshotOf(t, mem))); err != nil {
				t.Fatal(err)
			}
			mem = next
			sizes = append(sizes, len(snapshotOf(t, mem)))
		}
		if !(sizes[0] == sizes[1] && sizes[1] > sizes[2] && sizes[2] > sizes[3] && sizes[3] > sizes[4] && sizes[4] == empty) {
			t.Errorf("sizes %d, and %d of nothing", sizes, empty)
		}
	})
}

func TestSnapshotHoldsWhoIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := Must("1/h")
		defer lim.Close()
		for k := range 60 {
			lim.Take(fmt.Sprint(k), 1)
			time.Sleep(time.Minute)
		}
		all := snapshotOf(t, lim) // but the first, which is as new by now
		time.Sleep(50 * time.Minute)
		unused := NewMemory()
		if err := unused.Restore(bytes.NewReader(all)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(8 * time.Minute)
		last := snapshotOf(t, lim)
		if n := (len(all) - len(last)) / 24; n != 58 {
			t.Errorf("the snapshot of one key is %d keys smaller than that of 59", n)
		}
		// Nobody used what was restored, but one is limited by it still.
		back := Must("1/h")
		defer back.Close()
		if err := back.Restore(bytes.NewReader(snapshotOf(t, unused))); err != nil {
			t.Fatal(err)
		}
		if back.Take("59", 1).Allowed || !back.Take("58", 1).Allowed {
			t.Error("not the last one is limited")
		}
		time.Sleep(2 * time.Minute)
		if n, empty := len(snapshotOf(t, unused)), len(snapshotOf(t, NewMemory())); n != empty {
			t.Errorf("%d bytes, want %d: nobody is limited", n, empty)
		}
	})
}

// Nobody waits while a snapshot is written, however slowly.
func TestDecisionsDuringSnapshot(t *testing.T) {
	mem := manyKinds(t)
	sp := mustSpace(t, SpaceOptions{})
	m := mustMeter(t, "1/h")
	take := func(k uint64) Decision {
		return takeAll(t, mem, 1e18, Charge{Space: sp, Key: Key{k * 0x9e3779b97f4a7c15, k}, Meter: m, Ask: Ask{N: 1}})[0]
	}
	for k := range uint64(1 << 16) {
		take(k)
	}
	// Between any two writes decisions are made on all shards.
	n := uint64(1 << 16)
	if err := mem.Snapshot(writerFunc(func(b []byte) (int, error) {
		for range 300 {
			if n++; !take(n).Allowed {
				t.Error("a newcomer is refused")
			}
		}
		return len(b), nil
	})); err != nil {
		t.Fatal(err)
	}
	if n < 1<<16+256*300 {
		t.Errorf("%d decisions", n)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// What was decided before a snapshot is in it, whatever others do meanwhile.
func TestSnapshotUnderLoad(t *testing.T) {
	lim := Must("1000/366d burst 1000", MaxKeys(1<<14)) // next to nothing is earned
	logs := Must("60000/h log")
	defer lim.Close()
	defer logs.Close()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for g := range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				lim.Take(fmt.Sprint(g, i%5000), 1)
				logs.Take(fmt.Sprint(i%50), 1)
			}
		}()
	}
	for i := range int64(10) {
		lim.Take("mine", 1)
		logs.Take("mine", 1)
		if i == 5 {
			if err := lim.SetLimit(Limit{Rate: 2000, Period: 366 * 24 * time.Hour, Burst: 2000}); err != nil {
				t.Error(err)
			}
		}
		for _, l := range []*Limiter{lim, logs} {
			back, err := New(l.Limit(), MaxKeys(1<<14))
			if err != nil {
				t.Fatal(err)
			}
			if err := back.Restore(bytes.NewReader(snapshotOf(t, l))); err != nil {
				t.Fatal(err)
			}
			limit := int64(1000) // a raised burst is not there at once
			if l == logs {
				limit = 60000
			}
			if used := limit - back.Peek("mine").Remaining; used != i+1 {
				t.Errorf("%s: %d used, want %d", l.Limit(), used, i+1)
			}
			back.Close()
		}
	}
	close(stop)
	wg.Wait()
}

func TestSnapshotReplacesNothingButAFile(t *testing.T) {
	l := Must("1/s")
	defer l.Close()
	dir := t.TempDir()
	if err := l.SnapshotFile(dir); !errors.Is(err, ErrSnapshot) {
		t.Errorf("a folder: %v", err)
	}
	if err := l.SnapshotFile(filepath.Join(dir, "state")); err != nil {
		t.Error(err)
	}
}
