// Package watch tells when files have other contents than before, however they
// came there: written in place, renamed into place, or by a link that moved, as
// Kubernetes does with the files that it mounts.
//
// It looks at them from time to time instead of asking the system to tell: that
// works on every file system and through every link, and costs a few calls a
// second.
package watch

import (
	"context"
	"crypto/sha256"
	"io"
	"os"
	"time"
)

// Files are files that are watched. It is not for concurrent use.
type Files struct {
	seen []seen
}

// seen is what is known of one file.
type seen struct {
	name string
	info os.FileInfo // nil if there is none
	sum  [sha256.Size]byte
	// young tells that the file was written so shortly before it was read that
	// more may have come within the same tick of the file system's clock.
	young bool
}

// tick is longer than the steps in which file systems note times.
const tick = 2 * time.Second

// New begins to watch files, which need not be there. What they hold now is
// what they are compared with.
func New(names ...string) *Files {
	f := &Files{seen: make([]seen, len(names))}
	for i, name := range names {
		f.seen[i].name = name
		f.seen[i].look()
	}
	return f
}

// Changed reports whether the contents of a file are other ones than when New
// or Changed was called last. A file that is gone, or back, has changed.
func (f *Files) Changed() bool {
	changed := false
	for i := range f.seen {
		changed = f.seen[i].look() || changed
	}
	return changed
}

// Run calls changed each time that a look at the files, every so often, finds
// that they have changed. It returns when ctx ends.
func (f *Files) Run(ctx context.Context, every time.Duration, changed func()) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if f.Changed() {
				changed()
			}
		}
	}
}

// look looks at a file, reads it if it may have changed, and reports whether it
// has.
func (s *seen) look() bool {
	info, err := os.Stat(s.name)
	if err != nil || !info.Mode().IsRegular() {
		gone := s.info != nil
		s.info, s.sum, s.young = nil, [sha256.Size]byte{}, false
		return gone
	}
	if before := s.info; before != nil && !s.young && os.SameFile(before, info) && before.Size() == info.Size() && before.ModTime().Equal(info.ModTime()) {
		return false
	}
	sum, err := sumOf(s.name)
	if err != nil {
		return false // it is looked at again
	}
	changed := s.info == nil || sum != s.sum
	s.info, s.sum = info, sum
	age := time.Since(info.ModTime())
	s.young = age < tick && age > -tick
	return changed
}

func sumOf(name string) (sum [sha256.Size]byte, err error) {
	file, err := os.Open(name)
	if err != nil {
		return sum, err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}
