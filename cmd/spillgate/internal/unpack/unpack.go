// Package unpack reads answers that are packed with Brotli or Zstandard, which
// the standard library can't: the gateway finds out from them what a call used.
package unpack

import (
	"errors"
	"io"
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
)

var errBusy = errors.New("unpack: as many answers as may be are being unpacked")

// Options let an engine read such answers.
func Options() []policy.EngineOption {
	var open atomic.Int64
	br := &pool[*brotli.Reader]{open: &open, make: func() (*brotli.Reader, error) { return brotli.NewReader(nil), nil }}
	zst := &pool[*zstd.Decoder]{open: &open, make: func() (*zstd.Decoder, error) {
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
	free sync.Pool
	open *atomic.Int64 // of all pools
	make func() (R, error)
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
	if err == nil {
		err = z.Reset(r)
	}
	if err != nil {
		p.open.Add(-1)
		return nil, err
	}
	return &reader[R]{of: z, pool: p}, nil
}

type reader[R resetter] struct {
	of   R
	pool *pool[R]
	busy bool // in Read, or it panicked there
}

func (r *reader[R]) Read(b []byte) (int, error) {
	r.busy = true
	n, err := r.of.Read(b)
	r.busy = false
	return n, err
}

// Close gives the reader back, unless it is broken.
func (r *reader[R]) Close() error {
	r.pool.open.Add(-1)
	if !r.busy && r.of.Reset(nil) == nil { // what it read is not kept for it
		r.pool.free.Put(r.of)
	}
	return nil
}
