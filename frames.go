package spillgate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A snapshot is a line that names it, the version of its form, and frames.
// Numbers are little-endian, or of variable length as encoding/binary has
// them.
//
//	"spillgate state\n", version uint32, checksum uint32
//	frame…: kind byte, length uint32, body, checksum uint32
//
// A checksum is the CRC-32C of everything from the beginning of the snapshot
// up to it, earlier checksums included, so that nothing can be missing, be
// there twice or come from another snapshot.
//
//	frameClock   seed [16]byte, instant int64, wall int64, told byte
//	frameSpace   name, ttl varint, shards uvarint, stamped byte
//	frameLimit   text of a limit; the space's limits count from 1
//	frameShard   index uvarint, latest int64, then entries:
//	             tag uint64, state, [stamp int64], [kept]
//	frameTail    limit uvarint, changes, shared buckets
//	frameEnd     spaces uvarint
//
// The clock comes first, and the frames of each space follow its frameSpace, up
// to frameTail. A limit comes before the shards that name it. Where the upper
// bits of a state's second word name a meter in memory, they here give the
// number of its limit, 0 for none.
const (
	snapshotName    = "spillgate state\n"
	snapshotVersion = 1

	frameHead = 5       // bytes
	frameFull = 1 << 20 // a shard's frame of that length is continued in another
	frameMost = 1 << 26 // one kept state takes no more than half of it

	maxSnapshotLimits = 1 << 20
)

const (
	frameClock byte = iota + 1
	frameSpace
	frameLimit
	frameShard
	frameTail
	frameEnd
)

// ErrSnapshot is wrapped when what is to be restored is not a whole snapshot
// that this version can read: torn, changed, of another program or of a later
// version. Nothing was restored.
var ErrSnapshot = errors.New("not a whole snapshot")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A frameWriter writes frames. After an error it writes no more.
type frameWriter struct {
	w   io.Writer
	sum uint32
	err error
}

// begin writes what stands before the first frame.
func (f *frameWriter) begin() {
	b := binary.LittleEndian.AppendUint32([]byte(snapshotName), snapshotVersion)
	f.write(b)
}

// write writes b and the checksum, in the room behind b if there is any.
func (f *frameWriter) write(b []byte) {
	if f.err != nil {
		return
	}
	f.sum = crc32.Update(f.sum, castagnoli, b)
	n := len(b)
	b = binary.LittleEndian.AppendUint32(b, f.sum)
	f.sum = crc32.Update(f.sum, castagnoli, b[n:])
	if _, err := f.w.Write(b); err != nil {
		f.err = fmt.Errorf("spillgate: writing a snapshot: %w", err)
	}
}

// frame returns b as the room for a frame of that kind, whose body is to be
// appended.
func frame(b []byte, kind byte) []byte { return append(b[:0], kind, 0, 0, 0, 0) }

// send writes a frame.
func (f *frameWriter) send(b []byte) {
	if len(b)-frameHead > frameMost {
		f.err = errors.Join(f.err, fmt.Errorf("spillgate: writing a snapshot: a frame of %d bytes", len(b)))
		return
	}
	binary.LittleEndian.PutUint32(b[1:], uint32(len(b)-frameHead))
	f.write(b)
}

// A frameReader reads frames.
type frameReader struct {
	r   io.Reader
	sum uint32
	pos int64
	buf []byte
}

// wrong is an error about the bytes that were read last.
func (f *frameReader) wrong(format string, args ...any) error {
	return fmt.Errorf("spillgate: %w: %s (at byte %d): put back a whole one, or remove it and start empty", ErrSnapshot, fmt.Sprintf(format, args...), f.pos)
}

// read reads n more bytes, in steps, so that a length that is a lie costs
// nothing.
func (f *frameReader) read(n int) error {
	for n > 0 {
		step := min(n, frameFull)
		from := len(f.buf)
		f.buf = append(f.buf, make([]byte, step)...)
		got, err := io.ReadFull(f.r, f.buf[from:])
		f.pos += int64(got)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return f.wrong("it is torn and ends too early")
		}
		if err != nil {
			return fmt.Errorf("spillgate: reading a snapshot: %w", err)
		}
		n -= step
	}
	return nil
}

// check reads the checksum of what was read before.
func (f *frameReader) check() error {
	f.sum = crc32.Update(f.sum, castagnoli, f.buf)
	n := len(f.buf)
	if err := f.read(4); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(f.buf[n:]) != f.sum {
		return f.wrong("its checksum is wrong: it was changed")
	}
	f.sum = crc32.Update(f.sum, castagnoli, f.buf[n:])
	f.buf = f.buf[:n]
	return nil
}

// begin reads what stands before the first frame.
func (f *frameReader) begin() error {
	if err := f.read(len(snapshotName)); err != nil {
		return err
	}
	if string(f.buf) != snapshotName {
		return f.wrong("it does not begin as one: it is another program's")
	}
	if err := f.read(4); err != nil {
		return err
	}
	if v := binary.LittleEndian.Uint32(f.buf[len(snapshotName):]); v != snapshotVersion {
		return f.wrong("it is of version %d and this program reads version %d", v, snapshotVersion)
	}
	return f.check()
}

// next reads a frame. Its body is the caller's to keep.
func (f *frameReader) next() (kind byte, body []byte, err error) {
	f.buf = make([]byte, 0, frameHead)
	if err := f.read(frameHead); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(f.buf[1:])
	if n > frameMost {
		return 0, nil, f.wrong("a frame of %d bytes: it was changed", n)
	}
	f.buf = append(make([]byte, 0, min(frameHead+int(n)+4, frameFull)), f.buf...)
	if err := f.read(int(n)); err != nil {
		return 0, nil, err
	}
	if err := f.check(); err != nil {
		return 0, nil, err
	}
	return f.buf[0], f.buf[frameHead:], nil
}

// end reports whether nothing follows.
func (f *frameReader) end() error {
	var b [1]byte
	n, err := f.r.Read(b[:])
	for n == 0 && err == nil {
		n, err = f.r.Read(b[:])
	}
	if n > 0 {
		return f.wrong("something follows its end")
	}
	if err != io.EOF {
		return fmt.Errorf("spillgate: reading a snapshot: %w", err)
	}
	return nil
}

// A cursor takes a body apart. Where that ends too early it is bad, and gives
// zeros.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) bytes(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.b, c.bad = nil, true
		return nil
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) uint64() uint64 {
	if b := c.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) instant() Instant { return Instant(c.uint64()) }

func (c *cursor) byte() byte {
	if b := c.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.b, c.bad = nil, true
		return 0
	}
	c.b = c.b[n:]
	return v
}

// count returns a number of things that take at least so many bytes each.
func (c *cursor) count(each int) int {
	n := c.uvarint()
	if n > uint64(len(c.b)/each) {
		c.b, c.bad = nil, true
		return 0
	}
	return int(n)
}

// usual reports whether an instant is one that a store can have seen.
func usual(at Instant) bool { return firstInstant <= at && at <= lastInstant }

func (c *cursor) varint() int64 {
	v, n := binary.Varint(c.b)
	if n <= 0 {
		c.b, c.bad = nil, true
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) state() State { return State{int64(c.uint64()), c.uint64()} }
