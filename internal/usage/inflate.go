package usage

import (
	"compress/gzip"
	"io"
	"iter"
	"sync"
)

// maxInflated is how many bytes of a compressed answer are read, so that one
// that unpacks to far more than was sent costs no more than that.
const maxInflated = 64 << 20

var inflaters = sync.Pool{New: func() any { return &unpacker{text: make([]byte, 4096)} }}

// An unpacker is the memory of one inflater, reused: a window and two tables.
type unpacker struct {
	gzip.Reader
	text []byte
}

// An inflater unpacks gzip that comes in pieces. The package gzip wants to
// pull; so it runs as a coroutine, which goes on whenever a piece has come, and
// stops when it wants another.
type inflater struct {
	next   func() (struct{}, bool)
	stop   func()
	piece  []byte // what is to be read
	yield  func(struct{}) bool
	broken bool
	ended  bool // no more will come
}

// inflate makes an inflater whose text goes to sink, up to about so many bytes.
// It must be ended.
func inflate(sink func([]byte), most int) *inflater {
	f := &inflater{}
	f.next, f.stop = iter.Pull(func(yield func(struct{}) bool) {
		f.yield = yield
		u := inflaters.Get().(*unpacker)
		defer inflaters.Put(u)
		err := u.Reset(f)
		for n, left := 0, most; err == nil; {
			n, err = u.Read(u.text)
			sink(u.text[:n])
			if left -= n; left < 0 {
				err = gzip.ErrChecksum
			}
		}
		f.broken = err != io.EOF && !f.ended
	})
	return f
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

// Read gives gzip what has come, and waits for more.
func (f *inflater) Read(p []byte) (int, error) {
	for len(f.piece) == 0 {
		if f.ended || !f.yield(struct{}{}) {
			return 0, io.EOF
		}
	}
	n := copy(p, f.piece)
	f.piece = f.piece[n:]
	return n, nil
}
