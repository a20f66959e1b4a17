// Package unpack reads answers that are packed with Brotli or Zstandard, which
// the standard library can't: the gateway finds out from them what a call used.
package unpack

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/spillgate/spillgate/policy"
)

// Bounds of what is held. An answer that needs more is not read.
const (
	// maxWindow is the largest that Zstandard may have in HTTP (RFC 9659). A
	// reader has the window that the answer asks for, and little beside. That of
	// Brotli has 16 MiB at most (RFC 7932), and grows with what is unpacked.
	maxWindow = 8 << 20
	// MaxOpen is how many answers are unpacked at once.
	MaxOpen = 512
	// maxHeld is what all of them together may hold of what they unpacked, as
	// they must to read on: windows alone would be gigabytes, for a few bytes
	// sent each.
	maxHeld = 256 << 20
	// maxKept is how much a reader may have held that is kept for the next
	// answer, and the least that is counted.
	maxKept = 256 << 10
)

var errBusy = errors.New("unpack: as many answers as may be are being unpacked, or they hold as much as they may")

// Options let an engine read such answers.
func Options() []policy.EngineOption {
	of := load{turns: make(chan struct{}, runtime.GOMAXPROCS(0))}
	br := &pool[*brotli.Reader]{load: &of, window: 16 << 20, make: func() (*brotli.Reader, error) { return brotli.NewReader(nil), nil }}
	zst := &pool[*zstd.Decoder]{load: &of, window: maxWindow, make: func() (*zstd.Decoder, error) {
		// With a concurrency of 1 it reads in the goroutine that asks it.
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	}}
	return []policy.EngineOption{policy.Decoder("br", br.reader), policy.Decoder("zstd", zst.reader)}
}

// A resetter is a reader that can begin anew.
type resetter interface {
	io.Reader
	Reset(io.Reader) error
}

// A pool keeps readers for the next answer, since each has a window and tables.
type pool[R resetter] struct {
	*load
	free   sync.Pool
	window int64 // the largest
	make   func() (R, error)
}

// A load is what all pools have under way.
type load struct {
	open atomic.Int64 // answers
	held atomic.Int64 // bytes
	// turns are taken while a reader has something to unpack: it may have
	// filled its window long before all of it is read, and so is counted.
	turns chan struct{}
}

// reader returns a reader of what r has packed.
func (p *pool[R]) reader(r io.Reader) (io.ReadCloser, error) {
	if p.open.Add(1) > MaxOpen {
		p.open.Add(-1)
		return nil, errBusy
	}
	z, ok := p.free.Get().(R)
	var err error
	if !ok {
		z, err = p.make()
	}
	out := &reader[R]{of: z, pool: p, from: r}
	if err == nil {
		err = z.Reset((*source[R])(out))
	}
	if err != nil {
		out.rest()
		p.open.Add(-1)
		return nil, err
	}
	return out, nil
}

type reader[R resetter] struct {
	of         R
	pool       *pool[R]
	from       io.Reader
	turn       bool  // it has one
	broken     bool  // it read what it could not, or it panicked
	read, held int64 // bytes
}

// A source is where a reader reads from. Its turn is over while it waits.
type source[R resetter] reader[R]

func (s *source[R]) Read(b []byte) (int, error) {
	r := (*reader[R])(s)
	r.rest()
	n, err := r.from.Read(b)
	r.work()
	return n, err
}

// work takes a turn, and rest gives it back.
func (r *reader[R]) work() {
	if !r.turn {
		r.pool.turns <- struct{}{}
		r.turn = true
	}
}

func (r *reader[R]) rest() {
	if r.turn {
		<-r.pool.turns
		r.turn = false
	}
}

// Read reads on, unless too much is held. A window is filled by what was read,
// so it is as large as that up to its full size.
func (r *reader[R]) Read(b []byte) (int, error) {
	r.work()
	r.broken = true
	n, err := r.of.Read(b)
	r.broken = err != nil && err != io.EOF
	r.read += int64(n)
	for r.held < min(r.read, r.pool.window) {
		more := max(r.held, maxKept)
		r.held += more
		if r.pool.held.Add(more) > maxHeld {
			r.broken = true
			return n, errBusy
		}
	}
	return n, err
}

// Close gives the reader back, unless it is broken or large.
func (r *reader[R]) Close() error {
	defer r.rest()
	r.pool.open.Add(-1)
	r.pool.held.Add(-r.held)
	if !r.broken && r.held <= maxKept && r.of.Reset(nil) == nil { // what it read is not kept for it
		r.pool.free.Put(r.of)
	}
	return nil
}
