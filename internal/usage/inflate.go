package usage

import (
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"iter"
	"sync"
)

// maxInflated is how many bytes of a compressed answer are read, so that one
// that unpacks to far more than was sent costs no more than that.
const maxInflated = 64 << 20

// A Decoder opens what is encoded in one way. What it returns reads from r
// within its own Read only, in the goroutine that calls it, and never after
// Close.
type Decoder func(r io.Reader) (io.ReadCloser, error)

// Decoders are those by the name of their Content-Encoding.
type Decoders map[string]Decoder

// standard are those that the standard library has.
var standard = Decoders{"gzip": ungzip, "x-gzip": ungzip, "deflate": zlib.NewReader}

// of returns the decoder of that name, nil if there is none.
func (d Decoders) of(name string) Decoder {
	if open := d[name]; open != nil {
		return open
	}
	return standard[name]
}

// gzips are the memory of readers, reused: each has a window and two tables.
var gzips = sync.Pool{New: func() any { return &ungzipped{} }}

type ungzipped struct{ gzip.Reader }

// ungzip is the decoder of gzip.
func ungzip(r io.Reader) (io.ReadCloser, error) {
	z := gzips.Get().(*ungzipped)
	if err := z.Reset(r); err != nil {
		gzips.Put(z)
		return nil, err
	}
	return z, nil
}

// Close gives z back.
func (z *ungzipped) Close() error {
	gzips.Put(z)
	return nil
}

// texts are the pieces in which what was unpacked is read.
var texts = sync.Pool{New: func() any { return new([4096]byte) }}

// An inflater unpacks what comes in pieces. Decoders want to pull; so one runs
// as a coroutine, which goes on whenever a piece has come, and stops when it
// wants another.
type inflater struct {
	next   func() (struct{}, bool)
	stop   func()
	piece  []byte // what is to be read
	yield  func(struct{}) bool
	idle   int // times in a row that the decoder neither gave nor took anything
	broken bool
	ended  bool // no more will come
}

// inflate makes an inflater whose text goes to sink, up to about so many bytes.
// It must be ended.
func inflate(open Decoder, sink func([]byte), most int) *inflater {
	f := &inflater{}
	f.next, f.stop = iter.Pull(func(yield func(struct{}) bool) {
		f.yield = yield
		err := f.run(open, sink, most)
		f.broken = err != nil && !f.ended
	})
	return f
}

var errTooLong = errors.New("it unpacks to too much")

// maxIdle is how often a decoder may do nothing until it is given up.
const maxIdle = 100

// run unpacks to the end. A decoder that panics on what an upstream sends has
// not read it; the answer itself is none of its business, and goes on.
func (f *inflater) run(open Decoder, sink func([]byte), most int) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("the decoder panicked")
		}
	}()
	z, err := open(f)
	if err != nil {
		return err
	}
	defer z.Close()
	text := texts.Get().(*[4096]byte)
	defer texts.Put(text)
	for left := most; left >= 0; {
		n, err := z.Read(text[:])
		sink(text[:n])
		left -= n
		if err == io.EOF {
			return nil
		}
		if n > 0 {
			f.idle = 0
		} else if f.idle++; err == nil && f.idle > maxIdle {
			err = io.ErrNoProgress
		}
		if err != nil {
			return err
		}
	}
	return errTooLong
}

func (f *inflater) write(p []byte) {
	f.piece = p
	f.next() // does nothing when the text has ended
	f.piece = nil
}

// end reports whether what came could be unpacked.
func (f *inflater) end() bool {
	f.ended = true
	f.stop()
	return !f.broken
}

// Read gives the decoder what has come, and waits for more.
func (f *inflater) Read(p []byte) (int, error) {
	f.idle = 0
	for len(f.piece) == 0 {
		if f.ended || !f.yield(struct{}{}) {
			return 0, io.EOF
		}
	}
	n := copy(p, f.piece)
	f.piece = f.piece[n:]
	return n, nil
}
