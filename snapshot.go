package spillgate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// ErrInUse is wrapped by Restore when it comes too late.
var ErrInUse = errors.New("in use already: restore before the first charge, and before an engine is made")

// Snapshot writes all that m knows to w, for [Memory.Restore]: the states of
// all keys, those apart that are as new, the limits that they are under, the
// clock, and the seed by which keys are digested. That is a secret: whoever has
// it can aim keys at one bucket.
//
// m goes on deciding meanwhile. A decision waits no longer than it takes to
// copy one shard (4,096 keys and the logs and slots of these); what was decided
// before the call is in the snapshot, and what is decided during it may be.
//
// Spaces are told apart by their names, so two of one name are an error. A
// space that Restore read and nobody has used since is written again, until all
// its states are as new.
func (m *Memory) Snapshot(w io.Writer) error {
	m.mu.Lock()
	if err := m.usable(); err != nil {
		m.mu.Unlock()
		return err
	}
	bindings := make([]*binding, 0, len(m.tables))
	for _, b := range m.tables {
		bindings = append(bindings, b)
	}
	images := make([]*image, 0, len(m.restored))
	for _, img := range m.restored {
		images = append(images, img)
	}
	m.mu.Unlock()
	slices.SortFunc(bindings, func(a, b *binding) int { return strings.Compare(a.space.name, b.space.name) })
	slices.SortFunc(images, func(a, b *image) int { return strings.Compare(a.name, b.name) })

	d := dump{frameWriter: frameWriter{w: w}, memory: m}
	d.start()
	for i, b := range bindings {
		if i > 0 && bindings[i-1].space.name == b.space.name {
			return fmt.Errorf("spillgate: writing a snapshot: two spaces are named %q: drop the one that is not used any more", b.space.name)
		}
		d.space(b)
	}
	n := len(bindings)
	for _, img := range images {
		// On times of callers' own, the latest is worth keeping by itself.
		if img.until > int64(d.past(img.latest)) || m.told.Load() {
			img.dump(&d)
			n++
		}
	}
	d.end(n)
	return d.err
}

// Restore reads what [Memory.Snapshot] wrote, into a memory that was not used
// yet. A space has its states back when it is first used: that of the same
// name. The time since the snapshot counts as passed, by the wall clock, or as
// none if that went back.
//
// Errors wrap [ErrSnapshot] if it is no whole snapshot of a version that is
// known, and [ErrInUse]. Then nothing was restored.
func (m *Memory) Restore(r io.Reader) error {
	return m.restore(r, time.Now(), nil)
}

// restore restores a snapshot that ok, if there is one, has nothing against,
// at that time.
func (m *Memory) restore(r io.Reader, now time.Time, ok func(map[string]*image) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(); err != nil {
		return err
	}
	switch {
	case m.seen || m.restored != nil || len(m.tables) > 0:
		return fmt.Errorf("spillgate: %w", ErrInUse)
	}
	s := snapshotReader{frameReader: frameReader{r: bufio.NewReaderSize(r, 1<<16)}, images: map[string]*image{}}
	if err := s.readAll(); err != nil {
		return err
	}
	if ok != nil {
		if err := ok(s.images); err != nil {
			return err
		}
	}
	passed := max(0, instantOf(now).sub(s.wall))
	m.base, m.epoch = now, min(lastInstant, Instant(later(int64(s.clock), int64(passed))))
	m.seed, m.restored = s.seed, s.images
	m.told.Store(s.told)
	return nil
}

// A snapshotReader reads a snapshot whole, before any of it is used.
type snapshotReader struct {
	frameReader
	seed        Seed
	clock, wall Instant
	told        bool
	images      map[string]*image
	limits      int
}

func (s *snapshotReader) readAll() error {
	if err := s.begin(); err != nil {
		return err
	}
	kind, body, err := s.next()
	if err != nil {
		return err
	}
	c := cursor{b: body}
	var secret [16]byte
	copy(secret[:], c.bytes(16))
	s.seed = SeedFrom(secret)
	s.clock, s.wall = c.instant(), c.instant()
	s.told = c.byte() != 0
	if kind != frameClock || c.bad || len(c.b) > 0 || !usual(s.clock) || !usual(s.wall) {
		return s.wrong("%v", errStrange)
	}
	var img *image
	for {
		kind, body, err := s.next()
		if err != nil {
			return err
		}
		if err = s.frame(&img, kind, body); err == io.EOF {
			return s.end()
		}
		if err != nil {
			return s.wrong("%v", strings.TrimPrefix(err.Error(), "spillgate: "))
		}
	}
}

// frame reads a frame of img, the space at hand, or makes it nil at its end.
// It returns io.EOF at the end of the snapshot.
func (s *snapshotReader) frame(img **image, kind byte, body []byte) error {
	if (*img == nil) != (kind == frameSpace || kind == frameEnd) {
		return errStrange
	}
	switch kind {
	case frameEnd:
		c := cursor{b: body}
		if c.uvarint() != uint64(len(s.images)) || c.bad || len(c.b) > 0 {
			return errStrange
		}
		return io.EOF
	case frameSpace:
		*img = &image{}
		if err := (*img).space(body); err != nil {
			return err
		}
		if s.images[(*img).name] != nil {
			return errStrange
		}
	case frameLimit:
		if s.limits++; s.limits > maxSnapshotLimits {
			return errStrange
		}
		l, err := ParseLimit(string(body))
		if err != nil {
			return err
		}
		(*img).limits = append((*img).limits, l)
	case frameShard, frameTail:
	default:
		return errStrange
	}
	(*img).frames = append((*img).frames, body)
	(*img).kinds = append((*img).kinds, kind)
	if kind != frameTail {
		return nil
	}
	done := *img
	*img = nil
	s.images[done.name] = done
	return done.finish()
}

// Seed returns the seed by which whoever charges m digests keys: the one that
// was restored, or a random one. Restore comes before it, or is an error.
func (m *Memory) Seed() Seed {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = true
	return m.seed
}

// Resume says that the limit of all keys of sp is meter from now on, and gives
// sp what [Memory.Restore] has read of a space of that name. If that was under
// another limit, what was earned up to now counts under that one, as with
// [Space.Change].
//
// It comes before the first charge of sp, by who makes spaces; an engine of
// package policy does it. Without it that charge gives sp its states back, and
// those under another limit are carried over when each comes back.
func (m *Memory) Resume(sp *Space, meter *Meter) error {
	m.mu.Lock()
	m.seen = true
	img := m.restored[sp.name]
	m.mu.Unlock()
	if img == nil || img.limit == nil || img.limit == meter {
		sp.limit.Store(meter)
	} else {
		sp.limit.Store(img.limit)
	}
	if img == nil {
		return nil
	}
	if _, err := m.bind(sp); err != nil {
		return err
	}
	old := sp.limit.Load()
	if old == meter {
		return nil
	}
	at := img.latest
	if now := m.instants(time.Time{}); !m.told.Load() {
		at = max(at, now[now.of(meter)])
	}
	_, err := sp.Change(old, meter, at)
	return err
}

// SnapshotFile writes a snapshot to a file that only its owner may read and
// write. It is written under another name in the same directory, made to last
// (fsync) and renamed, so that there always is a whole one under path.
func (m *Memory) SnapshotFile(path string) error { return toFile(path, m.Snapshot) }

// RestoreFile is [Memory.Restore] from a file. If there is none, the error
// wraps [io/fs.ErrNotExist].
func (m *Memory) RestoreFile(path string) error { return fromFile(path, m.Restore) }

// Snapshot writes all that l knows, as [Memory.Snapshot] does: also of the
// limiters that share its keys, see [Limiter.With]. Who waits is not in it.
func (l *Limiter) Snapshot(w io.Writer) error { return l.memory.Snapshot(w) }

// Restore reads what [Limiter.Snapshot] wrote, into a limiter that was not used
// yet, as [Memory.Restore] does. The limit may be another one: what a key
// earned up to now counts under the old. The seed is that of the snapshot.
func (l *Limiter) Restore(r io.Reader) error {
	err := l.memory.restore(r, time.Now(), func(images map[string]*image) error {
		if len(images) > 0 && images[l.space.name] == nil {
			return fmt.Errorf("spillgate: %w of a limiter: it holds the spaces of a memory", ErrSnapshot)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return l.memory.Resume(l.space, l.meter.Load())
}

// SnapshotFile is [Limiter.Snapshot] to a file, as [Memory.SnapshotFile] does.
func (l *Limiter) SnapshotFile(path string) error { return toFile(path, l.Snapshot) }

// RestoreFile is [Limiter.Restore] from a file. If there is none, the error
// wraps [io/fs.ErrNotExist].
func (l *Limiter) RestoreFile(path string) error { return fromFile(path, l.Restore) }

func fromFile(path string, read func(io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("spillgate: %w", err)
	}
	defer f.Close()
	if err := read(f); err != nil {
		return fmt.Errorf("%w: %s", err, path)
	}
	return nil
}

func toFile(path string, write func(io.Writer) error) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("spillgate: %w: %s is there and is no file; a snapshot takes the place of what it is written to", ErrSnapshot, path)
	}
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	f, err := os.CreateTemp(dir, name+".new-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("spillgate: %w", err)
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("spillgate: %s was not written: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return syncDir(dir)
}

// syncDir makes a directory's entries last.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // has no such thing
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("spillgate: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
