// Package clientip finds the address of the client behind trusted proxies.
//
// A header such as X-Forwarded-For is text that anybody can send. It says
// something only when the peer, whose address the kernel vouches for, is a
// proxy that is known to write it. So the peer is judged first. Unless it is in
// a trusted network its own address is the answer and no header is looked at.
// From a trusted peer exactly one header is read, the one that was named, and
// lists are walked from the right, where the nearest proxy wrote, for as long as
// the hops are trusted themselves. What stands further left was written by
// somebody unknown and is never reached.
//
// Where a hop is obfuscated, unknown or garbage the walk ends at the last
// address that is known, a trusted proxy's. Unreadable text thus never becomes a
// key, and it never joins the clients of different proxies under one.
//
// Nothing is counted in hops: "trust the last two" on a server that can be
// reached past its proxies trusts everybody.
//
// Every address that leaves this package is in one normal form, see [Normal],
// so that equal bits are equal keys whatever the spelling. [Group] makes the
// network of a client out of it, since whoever has one IPv6 address usually has
// 2^64 of them.
//
// Sources: RFC 7239 (Forwarded), RFC 9110 section 5.3 (repeated header lines),
// RFC 4291 (IPv4-mapped addresses), RFC 6052 (NAT64), RFC 4007 (zones).
package clientip

import (
	"errors"
	"fmt"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
)

// Names of the two list headers. Any other name stands for a header with a
// single address, as CDNs and nginx set it: CF-Connecting-IP, True-Client-IP,
// Fastly-Client-IP, X-Real-IP.
const (
	Forwarded     = "Forwarded"       // RFC 7239
	XForwardedFor = "X-Forwarded-For" // a comma-separated list, never standardised
)

// Errors of [New], wrapped with the value at fault and the way out. A bad entry
// of Options.Trusted is a [*NetworkError].
var (
	ErrNothingTrusted    = errors.New("no trusted network")
	ErrEverythingTrusted = errors.New("everybody is trusted")
	ErrHeaderName        = errors.New("not a header with a client address")
)

// Options says whom to believe and what to read. The zero value trusts nobody.
type Options struct {
	// Trusted names the proxies' networks as [ParseNetworks] reads them. Whoever
	// is in one of them can claim to be any client, so keep it to the proxies.
	// Networks that cover all of IPv4 or all public IPv6 are refused, one by one
	// or taken together; [Any] says the same on purpose.
	Trusted []string

	// Header is the one header to read: [Forwarded], [XForwardedFor], or the name
	// of a header that holds a single address. Empty reads none. The proxies
	// must overwrite a header with a single address, not pass it through.
	Header string
}

// Resolver finds client addresses. It is immutable and safe for concurrent use.
// The zero value and nil trust nobody: the client is the peer.
type Resolver struct {
	trusted Networks
	header  string // canonical, as net/http spells its keys
	lower   string // as gRPC metadata spells them
	form    form
}

type form uint8

const (
	none form = iota
	single
	list
	rfc7239
)

// New makes a Resolver. It fails with [ErrNothingTrusted] if a header is named
// and no network, with [ErrEverythingTrusted] if the networks cover everybody
// unasked, with [ErrHeaderName] if the header cannot be one that names a client,
// and with a [*NetworkError] if an entry of the networks can't be read.
func New(o Options) (*Resolver, error) {
	trusted, err := ParseNetworks(o.Trusted...)
	if err != nil {
		return nil, err
	}
	if trusted.coversInternet() && !slices.Contains(o.Trusted, Any) {
		return nil, fmt.Errorf("clientip: trusted networks: %w: name the proxies' own networks, or write %q if nobody can reach this server past them", ErrEverythingTrusted, Any)
	}
	r := &Resolver{trusted: trusted}
	if o.Header == "" {
		return r, nil
	}
	if err := checkHeader(o.Header); err != nil {
		return nil, err
	}
	if trusted.empty() {
		return nil, fmt.Errorf("clientip: header %q: %w: anybody can send this header, so name the proxies that set it, such as %q, %q or a CIDR", o.Header, ErrNothingTrusted, Loopback, Private)
	}
	r.header = textproto.CanonicalMIMEHeaderKey(o.Header)
	r.lower = strings.ToLower(r.header)
	switch r.header {
	case Forwarded:
		r.form = rfc7239
	case XForwardedFor:
		r.form = list
	default:
		r.form = single
	}
	return r, nil
}

// others are fields that say something else of a request, by their names or how
// these begin. No proxy puts an address there, so every client would be the
// proxy, or, where a part of the value looks like one, whoever it says.
var (
	others = []string{
		"authorization", "cache-control", "connection", "cookie", "cookie2", "date", "dnt", "early-data", "expect", "from", "host", "http2-settings",
		"keep-alive", "max-forwards", "origin", "pragma", "priority", "proxy-authorization", "proxy-connection", "range", "referer", "set-cookie",
		"te", "traceparent", "tracestate", "trailer", "transfer-encoding", "upgrade", "upgrade-insecure-requests", "user-agent", "via", "want-digest",
		"warning", "x-csrf-token", "x-http-method", "x-http-method-override", "x-method-override", "x-request-id", "x-requested-with",
	}
	otherFamilies = []string{"accept", "access-control-", "content-", "if-", "sec-"}
)

// checkHeader refuses what is no header name, what holds something else, and
// what is nearly, but not quite, one of the two list headers: such a name would
// be absent from all requests and make every client the proxy.
func checkHeader(name string) error {
	for i := range len(name) {
		if !tokenByte(name[i]) {
			return fmt.Errorf("clientip: header %.60q: %w: byte %#x can't be in a header name", name, ErrHeaderName, name[i])
		}
	}
	lower := strings.ToLower(name)
	if slices.Contains(others, lower) || slices.ContainsFunc(otherFamilies, func(f string) bool { return strings.HasPrefix(lower, f) }) {
		return fmt.Errorf("clientip: header %.60q: %w: it says something else; name the one in which your proxy puts the address, such as %q or %q", name, ErrHeaderName, XForwardedFor, "X-Real-IP")
	}
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	if canonical == Forwarded || canonical == XForwardedFor {
		return nil
	}
	letters := strings.NewReplacer("-", "", "_", "").Replace(lower)
	words := strings.FieldsFunc(lower, func(c rune) bool { return c == '-' || c == '_' })
	slip := func(word string) bool { return word != "forwarded" && near(word, "forwarded", 2) }
	if strings.HasPrefix(letters, "forw") || strings.HasPrefix(letters, "xforw") || strings.HasPrefix(letters, "httpxforw") ||
		near(letters, "xforwardedfor", 2) || slices.ContainsFunc(words, slip) {
		return fmt.Errorf("clientip: header %.60q: %w: write %q or %q", name, ErrHeaderName, XForwardedFor, Forwarded)
	}
	return nil
}

// near reports whether so many slips, each a byte too many, too few or another,
// lead from a to b.
func near(a, b string, slips int) bool {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	switch {
	case a == "" || b == "":
		return len(a)+len(b) <= slips
	case slips == 0:
		return false
	}
	return near(a[1:], b, slips-1) || near(a, b[1:], slips-1) || near(a[1:], b[1:], slips-1)
}

// Header returns the one header that is read, as net/http spells its keys, and
// "" if none is.
func (r *Resolver) Header() string {
	if r == nil {
		return ""
	}
	return r.header
}

// Trusts tells whether the peer is in a trusted network, so that what it says of
// a request may count as proven. remoteAddr is as for [Resolver.Addr].
func (r *Resolver) Trusts(remoteAddr string) bool {
	if r == nil {
		return false
	}
	peer, ok := parsePeer(remoteAddr)
	return ok && r.trusts(peer)
}

// Addr returns the address of the client in normal form.
//
// remoteAddr is the peer as http.Request.RemoteAddr spells it: an address with
// or without a port, or a unix socket ("", "@…" or a path). header is a request's
// http.Header, or gRPC metadata, whose keys are lower case.
//
// A peer that is not trusted is the client. Behind a trusted one the client is
// the first hop from the right that is not trusted, or the leftmost if all are.
// A hop that can't be read ends the walk at the hop before it, and so do 256
// trusted hops, which no chain of proxies has. A header with a
// single address that stands there twice, or holds anything but an address,
// counts as absent: the client is the peer.
//
// The zero Addr means that no address is known at all: the peer is a unix
// socket or unreadable, and no trusted header tells more. What that means is
// the caller's to say; it must not become one key for everybody by accident.
func (r *Resolver) Addr(remoteAddr string, header map[string][]string) netip.Addr {
	peer, ok := parsePeer(remoteAddr)
	if !ok || r == nil || r.form == none || !r.trusts(peer) {
		return peer
	}
	lines, ok := header[r.header]
	if !ok {
		lines = header[r.lower]
	}
	if r.form != single {
		return r.walk(peer, lines)
	}
	if len(lines) != 1 {
		return peer
	}
	if client, ok := parseNode(trimBlank(lines[0])); ok && client.IsValid() {
		return client
	}
	return peer
}

// maxHops bounds the walk, which senders inside a trusted network could make as
// long as a header may be.
const maxHops = 256

// walk goes through the hops from the right, over all lines, and returns the
// last address that is known once it leaves the trusted networks.
func (r *Resolver) walk(at netip.Addr, lines []string) netip.Addr {
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; hops++ {
			var hop netip.Addr
			var ok bool
			if r.form == list {
				rest, hop, more, ok = lastListed(rest)
			} else {
				rest, hop, more, ok = lastForwarded(rest)
			}
			if !ok || hops == maxHops {
				return at
			}
			if hop.IsValid() {
				at = hop
			}
			if !r.trusts(hop) {
				return at
			}
		}
	}
	return at
}

// trusts judges a hop in normal form; the zero Addr is a unix socket.
func (r *Resolver) trusts(hop netip.Addr) bool {
	if !hop.IsValid() {
		return r.trusted.unix
	}
	return r.trusted.contains(hop)
}

// lastListed cuts the last entry off a line of X-Forwarded-For. An empty entry
// is not skipped, as lists are read elsewhere: it is a hop whose writer did not
// know its peer, and what stands left of it may be the peer's own invention.
func lastListed(line string) (rest string, hop netip.Addr, more, ok bool) {
	i := strings.LastIndexByte(line, ',')
	hop, ok = parseNode(trimBlank(line[i+1:]))
	if i < 0 {
		return "", hop, false, ok
	}
	return line[:i], hop, true, ok
}
