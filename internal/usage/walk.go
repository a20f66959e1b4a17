package usage

import (
	"bytes"
	"math/bits"
)

// done is what some send as the last event of a stream, in the place of JSON.
const done = "[DONE]"

// maxCount is the most that a number may be to be believed.
const maxCount = 1_000_000_000

// A walker reads JSON in pieces of any size, and takes the numbers at the
// paths of its format. What lies off the paths is stepped over: only its
// strings and brackets are told apart. Keys are compared as they are written,
// so one that is spelt with escapes is another.
//
// Documents may follow each other, as lines or as the items of an array.
type walker struct {
	format *Format
	state  state
	back   state // after a string
	escape bool  // the string's last byte was a backslash
	level  int   // of objects on the way of a path
	off    int   // brackets that are open off the way

	alive  [maxSegments + 1]uint32 // the paths that lead on from each level
	here   uint32                  // those that lead to or through the value that follows
	text   [maxSegment]byte        // the key or number at hand
	length int                     // of it; above maxSegment if it is longer

	docs   int // objects that ended
	values [maxPaths]int64
	told   uint32 // a bit a slot
	kept   uint32 // a bit a slot: what was told holds if this is the end
	final  uint32 // a bit a slot: what was told holds anyway
	mark   int    // how much of done was read
	done   bool   // it was
	absurd bool   // something else than a count stood where one belongs
}

type state uint8

const (
	atRoot state = iota
	atKey
	inKey
	atColon
	atValue
	inNumber // or true, false, null
	atComma
	inString
	isOff
)

// begin makes w read from a new document on; what was told is kept.
func (w *walker) begin() {
	w.state, w.escape, w.level, w.off, w.mark = atRoot, false, 0, 0, 0
}

// whole reports whether nothing is open, and something was read.
func (w *walker) whole() bool { return w.state == atRoot && w.docs > 0 }

// walk reads p.
func (w *walker) walk(p []byte) {
	for len(p) > 0 {
		switch w.state {
		case inString:
			p = w.skipString(p)
			continue
		case isOff:
			p = w.skipOff(p)
			continue
		case inKey:
			p = w.readKey(p)
			continue
		}
		c := p[0]
		p = p[1:]
		switch w.state {
		case atRoot: // between documents, where brackets and commas may stand
			switch c {
			case '{':
				w.enter(w.format.all)
			case '"':
				w.state, w.back = inString, atRoot
			}
			if c != done[w.mark] {
				w.mark = 0
			}
			if c == done[w.mark] {
				if w.mark++; w.mark == len(done) {
					w.mark, w.done = 0, true
				}
			}
		case atKey:
			switch c {
			case '"':
				w.state, w.length = inKey, 0
			case '}':
				w.leave()
			}
		case atColon:
			if c == ':' {
				w.state = atValue
			}
		case atValue:
			w.value(c)
		case inNumber:
			switch c {
			case ',', '}', ' ', '\t', '\r', '\n':
				w.number()
				w.comma(c)
			default:
				w.collect(c)
			}
		case atComma:
			w.comma(c)
		}
	}
}

// value takes the first byte of a value in an object on the way.
func (w *walker) value(c byte) {
	switch c {
	case ' ', '\t', '\r', '\n':
		return
	case '{':
		leaves, on := w.split()
		w.absurd = w.absurd || leaves != 0
		if on != 0 {
			w.enter(on)
			return
		}
		w.state, w.off = isOff, 1
	case '[':
		leaves, _ := w.split()
		w.absurd = w.absurd || leaves != 0
		w.state, w.off = isOff, 1
	case '"':
		leaves, _ := w.split()
		w.absurd = w.absurd || leaves != 0
		w.state, w.back = inString, atComma
	case ',', '}': // there is none
		w.comma(c)
	default:
		w.state, w.length = inNumber, 0
		w.collect(c)
	}
}

// split tells the paths that end at the value from those that go on in it.
func (w *walker) split() (leaves, on uint32) {
	for rest := w.here; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros32(rest)
		if len(w.format.paths[i].segments) == w.level {
			leaves |= 1 << i
		} else {
			on |= 1 << i
		}
	}
	return leaves, on
}

func (w *walker) enter(alive uint32) {
	w.level++
	w.alive[w.level], w.state = alive, atKey
}

func (w *walker) leave() {
	if w.level--; w.level == 0 {
		w.docs++
		w.state = atRoot
		return
	}
	w.state = atComma
}

func (w *walker) comma(c byte) {
	switch c {
	case ',':
		w.state = atKey
	case '}':
		w.leave()
	default:
		w.state = atComma
	}
}

func (w *walker) collect(c byte) {
	if w.length < maxSegment {
		w.text[w.length] = c
		w.length++
	} else {
		w.length = maxSegment + 1
	}
}

// readKey reads on in a key, up to its end.
func (w *walker) readKey(p []byte) []byte {
	for i, c := range p {
		switch {
		case w.escape:
			w.escape = false
		case c == '\\':
			w.escape = true
		case c == '"':
			w.here = 0
			if w.length <= maxSegment {
				w.here = w.format.match(w.alive[w.level], w.level-1, w.text[:w.length])
			}
			w.state = atColon
			return p[i+1:]
		}
		w.collect(c)
	}
	return nil
}

// skipString returns what follows the end of the string in p.
func (w *walker) skipString(p []byte) []byte {
	if w.escape {
		w.escape = false
		p = p[1:]
	}
	const short = 24 // most strings are over before a search has begun
	for i, c := range p[:min(short, len(p))] {
		if c == '\\' {
			p = p[i:]
			break
		}
		if c == '"' {
			w.state = w.back
			return p[i+1:]
		}
	}
	end := bytes.IndexByte(p, '"')
	for {
		before := p
		if end >= 0 {
			before = p[:end]
		}
		i := bytes.IndexByte(before, '\\')
		switch {
		case i >= 0 && i+1 == len(p):
			w.escape = true
			return nil
		case i >= 0:
			p = p[i+2:]
			if end == i+1 { // it is that quote which is escaped
				end = bytes.IndexByte(p, '"')
			} else if end >= 0 {
				end -= i + 2
			}
		case end >= 0:
			w.state = w.back
			return p[end+1:]
		default:
			return nil
		}
	}
}

// skipOff returns what follows the end of the value off the way in p.
func (w *walker) skipOff(p []byte) []byte {
	for i, c := range p {
		switch c {
		case '"':
			w.state, w.back = inString, isOff
			return p[i+1:]
		case '{', '[':
			w.off++
		case '}', ']':
			if w.off--; w.off == 0 {
				w.state = atComma
				return p[i+1:]
			}
		}
	}
	return nil
}

// number takes the scalar that just ended, if a path ends there.
func (w *walker) number() {
	leaves, _ := w.split()
	text := w.text[:min(w.length, maxSegment)]
	if leaves == 0 || string(text) == "null" {
		return
	}
	n, ok := count(text)
	if w.length > maxSegment || !ok {
		w.absurd = true
		return
	}
	for rest := leaves; rest != 0; rest &= rest - 1 {
		p := &w.format.paths[bits.TrailingZeros32(rest)]
		w.values[p.slot] = max(w.values[p.slot], n)
		w.told |= 1 << p.slot
		if p.holds != never {
			w.kept |= 1 << p.slot
		}
		if p.holds == atOnce {
			w.final |= 1 << p.slot
		}
	}
}

// count reads a number that can be a count: whole, not negative, not absurd.
func count(text []byte) (n int64, ok bool) {
	if len(text) == 0 || len(text) > 10 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, n <= maxCount
}

// sum adds up what was told of a quantity. Each slot counts once.
func (w *walker) sum(quantity int) (n int64, seen uint32) {
	for i := range w.format.paths {
		p := &w.format.paths[i]
		if bit := uint32(1) << p.slot; p.adds&(1<<quantity) != 0 && seen&bit == 0 {
			seen |= bit
			n += w.values[p.slot]
		}
	}
	return n, seen
}
