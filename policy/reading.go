package policy

import (
	"bytes"
	"math/bits"
	"unsafe"
)

// A reading is one way to take a path. What servers decide each by itself is a
// field of its own: nginx takes %2F for a slash and no backslash for one, a URL
// parser of the WHATWG's the other way round.
type reading struct {
	coded bool      // an encoded slash is a slash
	back  backslash // which backslashes are
	host  host      // what follows two slashes
	cut   cut       // which parameters are cut from segments
	dots  dots      // what "." and ".." do
	query bool      // an encoded "?" or "#" ends the path: a server that decodes before it parses
	slash bool      // the slash at the end is kept
}

// backslash says which backslashes are slashes.
type backslash uint8

const (
	backSent backslash = iota // those that were sent as they are: the WHATWG's parsers
	backNone                  // none: nginx, Apache
	backAll                   // IIS, Envoy where it unescapes slashes, Tomcat where it takes them
)

// host says whether what stands between the slashes that a path begins with and
// the next one is a host, as in //host/path, and no part of the path.
type host uint8

const (
	hostNone host = iota
	hostSent      // where the slashes are as they were sent: the WHATWG's parsers (Node), PHP's parse_url, Python's urlsplit, Java's and Ruby's URI
	hostRead      // where they are in any form: a server that decodes before it parses
)

// cut says what is a parameter, and no part of the path.
type cut uint8

const (
	cutRead  cut = iota // from a ";" to the next slash in any form: a server that decodes slashes before it cuts
	cutNone             // nothing
	cutSent             // from a ";" to the next "/" that was sent as it is: Tomcat
	cutCoded            // from any ";", also an encoded one, to the next slash in any form: Tomcat behind what decodes
	cutRest             // from a ";" to the end, as if it began the query: find-my-way, in restify and Fastify
	cutAll              // from any ";", also an encoded one, to the end: find-my-way behind what decodes
)

// dots says what "." and ".." segments do.
type dots uint8

const (
	dropEmpty dots = iota // ".." removes the segment before it that is not empty: nginx, Apache, Go, Tomcat
	keepEmpty             // it removes an empty one, too: the WHATWG's parsers, RFC 3986, Kestrel, and nginx with merge_slashes off
	asLetters             // nothing: they are names like any other, as for Express, Django and most routers
)

// A pass is what is done to a path before it is read, by the same server (Apache
// resolves dots once more after it has decoded slashes) or by one in front of it.
type pass struct {
	dots  bool // "." and ".." are resolved; if not, the pass does nothing
	coded bool // so are those between encoded slashes, which are decoded
	sent  bool // an encoded dot is none: HAProxy, Java's URI.normalize
	empty bool // empty segments are kept
	plain bool // no backslash is a slash to it, though one is to who reads
}

// isSlash reports whether an octet is a slash.
func (r *reading) isSlash(c byte, coded bool) bool {
	switch c {
	case '/':
		return !coded || r.coded
	case '\\':
		return r.back == backAll || r.back == backSent && !coded
	}
	return false
}

// isParam reports whether an octet begins a parameter.
func (r *reading) isParam(c byte, coded bool) bool {
	return c == ';' && (r.cut == cutCoded || !coded && (r.cut == cutRead || r.cut == cutSent))
}

// isEnd reports whether the path ends before an octet.
func (r *reading) isEnd(c byte, coded bool) bool {
	switch c {
	case ';':
		return r.cut == cutAll || r.cut == cutRest && !coded
	case '?', '#':
		return r.query // these are always encoded, also where a front has decoded them
	}
	return false
}

// past returns where the path begins in s: behind a host, if there is one.
func (r *reading) past(s string) int {
	if r.host == hostNone {
		return 0
	}
	slashes := 0
	for i := 0; i < len(s); {
		c, coded, n := octet(s, i)
		slash := r.isSlash(c, coded) && (!coded || r.host == hostRead)
		switch {
		case slash && slashes >= 0:
			slashes++
		case slash:
			return i
		case slashes < 2 && slashes >= 0:
			return 0
		case r.isEnd(c, coded):
			return len(s)
		default:
			slashes = -1 // in the host
		}
		i += n
	}
	if slashes > 0 && slashes < 2 {
		return 0
	}
	return len(s)
}

// oddities are what of a path servers may differ on.
type oddities struct {
	slash, back, codedBack bool // an encoded slash, a backslash, an encoded one
	param, codedParam      bool // a ";", an encoded one
	query                  bool // a "?" or a "#", which are encoded
	dots, codedDots        bool // a segment "." or "..", some of it encoded
	empty                  bool // two slashes in a row, or parameters alone between two
	double                 bool // it begins with two
}

// odditiesOf returns the oddities of s.
func odditiesOf(s string) (o oddities) {
	const name = -1           // a segment that has more than dots
	seg, first := 0, true     // how many dots the segment has
	begins, coded := 0, false // slashes at the front; a dot of the segment is encoded
	for i := 0; i < len(s); {
		c, enc, n := octet(s, i)
		i += n
		switch {
		case isSlash(c):
			o.slash = o.slash || c == '/' && enc
			o.back = o.back || c == '\\' && !enc
			o.codedBack = o.codedBack || c == '\\' && enc
			if begins >= 0 {
				begins++
			}
			o.empty = o.empty || seg == 0 && !first
			o.ends(seg, coded)
			seg, coded, first = 0, false, false
			continue
		case c == ';', c == '?', c == '#':
			o.query = o.query || c != ';'
			o.param, o.codedParam = o.param || c == ';' && !enc, o.codedParam || c == ';' && enc
			o.empty = o.empty || seg == 0
			o.ends(seg, coded)
			seg = name
		case c == '.' && seg >= 0:
			seg++
			coded = coded || enc
		default:
			seg = name
		}
		o.double = o.double || begins >= 2
		begins = -1
	}
	o.double = o.double || begins >= 2
	o.ends(seg, coded)
	return o
}

func (o *oddities) ends(dots int, coded bool) {
	if dots == 1 || dots == 2 {
		o.dots, o.codedDots = true, o.codedDots || coded
	}
}

const (
	// maxReadings is how many readings of a path are told apart. No path has so
	// many that is not made for it: //a%2Fb%5Cc;d has 15.
	maxReadings = 32
	// maxWork bounds what one path costs: its length, times how often it is read.
	maxWork = 1 << 14
	// freeReadings is how often a path is read however long it is.
	freeReadings = 8
)

// appendReadings appends the readings of a path, each with the slash at its
// end if that is kept.
func appendReadings(dst []byte, raw string, keep bool) []byte {
	if isNormal(raw) {
		return append(dst, raw...)
	}
	start, found := len(dst), 1
	dst = appendReading(dst, raw, reading{slash: keep})
	w := odditiesOf(raw).ways()
	count := w.count()
	if count > freeReadings && count*len(raw) > maxWork {
		return append(append(dst, readingsEnd), anyReading...)
	}
	for n := 1; n < count; n++ {
		p, r := w.way(n)
		r.slash = keep
		end := len(dst)
		dst = appendWay(append(dst, readingsEnd), raw, p, r)
		switch {
		case hasReading(dst[start:end], dst[end+1:]):
			dst = dst[:end]
		case found == maxReadings:
			return append(dst[:end+1], anyReading...)
		default:
			found++
		}
	}
	return dst
}

// ways are the ways to take a path of which servers may differ: for each field of
// a reading, and for the pass before it, the set of its values.
type ways [7]uint16

// ways returns the ways that may differ on a path with such oddities.
func (o oddities) ways() ways {
	set := func(values ...bool) (s uint16) {
		for i, there := range values {
			if there {
				s |= 1 << i
			}
		}
		return s
	}
	coded := o.slash || o.codedBack
	twice := o.dots && (coded || o.codedDots || o.param || o.codedParam || o.query || o.empty)
	up := o.dots && o.empty
	other := twice && (o.back || o.codedBack) // what the one takes for a slash, and the next for none
	return ways{
		set(true, up, o.dots),
		set(true, twice || o.back && o.param, twice && up, twice && o.codedDots, twice && up && o.codedDots, twice && coded, twice && up && coded,
			other, other && up, other && o.codedDots, other && up && o.codedDots, other && o.slash, other && up && o.slash),
		set(true, o.param, o.param && (coded || o.back), o.codedParam, o.param, o.codedParam),
		set(true, o.double || up, (o.double || up) && coded),
		set(true, o.back, o.codedBack),
		set(true, o.slash),
		set(true, o.query),
	}
}

// firsts are the passes that the second of a way's values is one of.
var firsts = [...]pass{{},
	{dots: true}, {dots: true, empty: true}, {dots: true, sent: true}, {dots: true, sent: true, empty: true}, {dots: true, coded: true}, {dots: true, coded: true, empty: true},
	{dots: true, plain: true}, {dots: true, plain: true, empty: true}, {dots: true, plain: true, sent: true}, {dots: true, plain: true, sent: true, empty: true},
	{dots: true, plain: true, coded: true}, {dots: true, plain: true, coded: true, empty: true}}

func (w *ways) count() int {
	n := 1
	for _, s := range w {
		n *= bits.OnesCount16(s)
	}
	return n
}

// way returns the n-th way. The first is the zero reading without a pass.
func (w *ways) way(n int) (pass, reading) {
	var at [len(w)]uint16
	for i, s := range w {
		size := bits.OnesCount16(s)
		for range n % size {
			s &= s - 1
		}
		at[i] = uint16(bits.TrailingZeros16(s))
		n /= size
	}
	return firsts[at[1]], reading{dots: dots(at[0]), cut: cut(at[2]), host: host(at[3]), back: backslash(at[4]), coded: at[5] == 1, query: at[6] == 1}
}

// appendWay appends the reading of a path after a pass.
func appendWay(dst []byte, raw string, p pass, r reading) []byte {
	if !p.dots {
		return appendReading(dst, raw, r)
	}
	end := len(dst)
	dst = appendResolved(dst, raw, p, r)
	mid := len(dst)
	// What was appended stays as it is while it is read: what is appended behind
	// it may move dst, and then it stays where it was.
	dst = appendReading(dst, unsafe.String(unsafe.SliceData(dst[end:]), mid-end), r)
	return append(dst[:end], dst[mid:]...)
}

// appendResolved appends a path, still encoded, with its "." and ".." segments
// resolved (RFC 3986, section 5.2.4).
func appendResolved(dst []byte, raw string, p pass, r reading) []byte {
	if p.plain {
		r.back = backNone
	}
	start, dots := len(dst), 0 // how many the segment has, below 0 if more than dots
	i := 0
	if raw != "" && r.isSlash(raw[0], false) {
		i = 1
	}
	seg := len(dst)
	dst = append(dst, '/')
	for more := true; more; {
		var c byte
		coded, n := false, 0
		if more = i < len(raw); more {
			c, coded, n = octet(raw, i)
			if !r.isSlash(c, coded) || coded && !p.coded {
				if c == '.' && dots >= 0 && !(coded && p.sent) {
					dots++
				} else {
					dots = -1
				}
				dst = append(dst, raw[i:i+n]...)
				i += n
				continue
			}
			i += n
		}
		switch empty := len(dst) == seg+1; {
		case dots == 1 || empty && !p.empty:
			dst = dst[:seg]
		case dots == 2:
			dst = dst[:seg]
			if i := bytes.LastIndexByte(dst[start:], '/'); i >= 0 {
				dst = dst[:start+i]
			}
		case !more:
			return dst
		}
		seg, dots = len(dst), 0
		dst = append(dst, '/')
	}
	return dst
}

// hasReading reports whether r is one of the readings.
func hasReading(readings, r []byte) bool {
	for len(readings) > 0 {
		one, rest, _ := bytes.Cut(readings, []byte{readingsEnd})
		if bytes.Equal(one, r) {
			return true
		}
		readings = rest
	}
	return false
}
