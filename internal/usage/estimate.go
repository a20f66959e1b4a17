package usage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// An InputEstimate says how many tokens a request has before the answer tells:
// one for so many bytes, rounded up, or always so many.
type InputEstimate struct {
	Bytes  int64 // a token; 0 means that Tokens is meant
	Tokens int64
}

// ParseInput reads an estimate: "bytes/4", or a number.
func ParseInput(s string) (InputEstimate, error) {
	if rest, ok := strings.CutPrefix(s, "bytes/"); ok {
		if n, ok := whole(rest, 1, 100); ok {
			return InputEstimate{Bytes: n}, nil
		}
	} else if n, ok := whole(s, 0, maxCount); ok {
		return InputEstimate{Tokens: n}, nil
	}
	return InputEstimate{}, fmt.Errorf(`%q: want bytes/N, a token for each N bytes (1 to 100), or a number of tokens`, s)
}

// of returns the tokens of a request of that size.
func (e InputEstimate) of(size int64) int64 {
	if e.Bytes == 0 {
		return e.Tokens
	}
	return min(size/e.Bytes+min(1, size%e.Bytes), maxCount)
}

// An OutputEstimate says how many tokens an answer has before it tells: the
// first of these that is known.
type OutputEstimate struct {
	sources []int64 // below 0: fromMost, fromPast; otherwise a number
}

const (
	fromMost = -1 // what the request says is the most
	fromPast = -2 // what the last answers had
)

// ParseOutput reads an estimate: "max_tokens else p95 else 1000". The last part
// is a number.
func ParseOutput(s string) (e OutputEstimate, err error) {
	parts := strings.Split(s, " else ")
	for i, part := range parts {
		part = strings.TrimSpace(part)
		n, ok := whole(part, 0, maxCount)
		switch {
		case part == "max_tokens":
			n = fromMost
		case part == "p95":
			n = fromPast
		case !ok:
			return e, fmt.Errorf(`%q: want max_tokens, p95 or a number, with "else" between, such as "max_tokens else p95 else 1000"`, s)
		}
		switch last := i == len(parts)-1; {
		case slices.Contains(e.sources, n):
			return e, fmt.Errorf("%q: %s is there twice", s, part)
		case last && n < 0:
			return e, fmt.Errorf("%q: %s may not be known; end with a number, such as %q", s, part, s+" else 1000")
		case !last && n >= 0:
			return e, fmt.Errorf("%q: %s is always known, so what follows is never used", s, part)
		}
		e.sources = append(e.sources, n)
	}
	return e, nil
}

// Asks reports whether the request has to be read for it.
func (e OutputEstimate) Asks() bool { return slices.Contains(e.sources, fromMost) }

func (e OutputEstimate) of(most int64, past *recent) int64 {
	for _, n := range e.sources {
		switch {
		case n >= 0:
			return n
		case n == fromMost && most >= 0:
			return most
		case n == fromPast:
			if p, ok := past.p95(); ok {
				return p
			}
		}
	}
	return 0
}

func whole(s string, low, high int64) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && low <= n && n <= high && strconv.FormatInt(n, 10) == s
}

// recent keeps the last outputs, in the order in which they came and in that
// of their size.
type recent struct {
	mu     sync.Mutex
	last   [remembered]int64
	sorted [remembered]int64
	n      int // how many there are
	next   int // the place of the next
}

const (
	remembered = 256
	// enough is from how many outputs on p95 is told: of fewer than 20 it
	// would be the greatest.
	enough = 20
)

func (r *recent) add(v int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sorted[:r.n]
	if r.n == remembered {
		i, _ := slices.BinarySearch(s, r.last[r.next])
		copy(s[i:], s[i+1:])
		s = s[:remembered-1]
	} else {
		r.n++
	}
	i, _ := slices.BinarySearch(s, v)
	copy(r.sorted[i+1:r.n], s[i:])
	r.sorted[i] = v
	r.last[r.next] = v
	r.next = (r.next + 1) % remembered
}

// p95 returns the least of the last outputs that 95 of 100 do not exceed.
func (r *recent) p95() (int64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n < enough {
		return 0, false
	}
	return r.sorted[(r.n*95+99)/100-1], true
}

// Asked is what a request says of itself.
type Asked struct {
	Size int64 // bytes of its body, as far as they are known
	Most int64 // how many tokens all its answers together may have; below 0 if it does not say
}

// An Asker reads the body of a request. Make it ready with [Asker.Begin].
type Asker struct{ walker }

// Begin makes a ready for a body of format f.
func (a *Asker) Begin(f *Format) { a.walker = walker{format: f} }

// Write reads on in the body.
func (a *Asker) Write(p []byte) { a.walk(p) }

// Most returns how many tokens the answers may have, as far as was read; below
// 0 if that was not said.
func (a *Asker) Most() int64 {
	most, slots := a.sum(Most)
	if a.told&slots == 0 {
		return -1
	}
	if n, slots := a.sum(Choices); a.told&slots != 0 && n > 1 {
		most = min(most, maxCount/n) * n // or next to maxCount
	}
	return min(most, maxCount)
}
