package usage

import "bytes"

// events reads a stream of server-sent events. Only the data of an event that
// can tell something is read as JSON; the others are stepped over by one search
// for the words that would have to stand in them.
type events struct {
	walker
	prefix int  // how much of "data:" the line began with; -1 if with something else
	inData bool // in the value of a data line
	column bool // something of the line was read
	busy   bool // something of the event was read
	cr     bool // the last byte was a carriage return
}

const dataField = "data:"

// read reads p.
func (e *events) read(p []byte) {
	for len(p) > 0 {
		if !e.busy && !e.column {
			if p = e.skip(p); len(p) == 0 {
				return
			}
		}
		p = e.event(p)
	}
}

// skip returns p from the event on that is the first to read: one that can
// tell something, or that does not end in p. It is called between events.
func (e *events) skip(p []byte) []byte {
	if e.cr {
		e.cr = false
		if p[0] == '\n' { // of the blank line before
			p = p[1:]
		}
	}
	before := p
	if i := e.find(p); i >= 0 {
		before = p[:i]
	}
	end := afterBlank(before)
	// What is stepped over is not read, but for its last event if that may be
	// the word that ends streams.
	if over := bytes.TrimRight(p[:end], "\r\n"); bytes.HasSuffix(over, []byte(done)) {
		end = afterBlank(over)
	} else if len(over) > 0 {
		e.done = false
	}
	return p[end:]
}

// find returns where the first needle stands in p, -1 if none does.
func (e *events) find(p []byte) int {
	first := -1
	for _, needle := range e.format.needles {
		if i := bytes.Index(p, needle); i >= 0 && (first < 0 || i < first) {
			first = i
			p = p[:i+len(needle)-1]
		}
	}
	return first
}

// afterBlank returns where the last blank line of p ends, 0 if there is none.
// Of lines that end in a carriage return alone it knows nothing.
func afterBlank(p []byte) int {
	for {
		i := bytes.LastIndexByte(p, '\n')
		if i < 1 {
			return 0
		}
		if p[i-1] == '\n' || p[i-1] == '\r' && i > 1 && p[i-2] == '\n' {
			return i + 1
		}
		p = p[:i]
	}
}

// event reads on in an event, and returns what follows it, or nil.
func (e *events) event(p []byte) []byte {
	for len(p) > 0 {
		c := p[0]
		if e.cr {
			e.cr = false
			if c == '\n' {
				p = p[1:]
				continue
			}
		}
		if c == '\n' || c == '\r' {
			e.cr = c == '\r'
			p = p[1:]
			if e.endLine() {
				return p
			}
			continue
		}
		if !e.inData && e.prefix >= 0 {
			if !e.busy {
				e.done = false // the end is the last event
			}
			e.column, e.busy = true, true
			if c != dataField[e.prefix] {
				e.prefix = -1
			} else if e.prefix++; e.prefix == len(dataField) {
				e.inData = true
			}
			p = p[1:]
			continue
		}
		end := lineEnd(p)
		if e.inData {
			e.walk(p[:end])
		}
		p = p[end:]
	}
	return nil
}

// endLine ends a line, and reports whether it was blank, so that the event is
// over.
func (e *events) endLine() bool {
	blank := !e.column
	if e.inData {
		e.walk([]byte{'\n'}) // lines of one event are one text
	}
	e.prefix, e.inData, e.column = 0, false, false
	if blank {
		e.busy = false
		e.walker.begin()
	}
	return blank
}

// lineEnd returns where the line at p ends: the length of p if it does not.
func lineEnd(p []byte) int {
	end := bytes.IndexByte(p, '\n')
	if end < 0 {
		end = len(p)
	}
	if i := bytes.IndexByte(p[:end], '\r'); i >= 0 {
		end = i
	}
	return end
}
