package httplimit

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/policy"
)

// An Option shapes the middleware of [New] or [Policy].
type Option func(*options)

type options struct {
	sources    []source
	resolver   *clientip.Resolver
	prefix     int // of IPv6 addresses, for New
	claim      func(*http.Request, string) (string, bool)
	costs      []costOf
	headers    HeaderMode
	denied     func(http.ResponseWriter, *http.Request, Refusal)
	log        *slog.Logger
	name       string
	bare       bool // no verdict in the context
	jitter     int  // percent
	backup     http.Handler
	dialects   []Dialect // beside Draft, which undrafted leaves out
	undrafted  bool
	partitions bool          // tell of partition keys
	stall      time.Duration // see BodyStall
	naming     naming        // see AnyServer
}

// A source says who is asking. get is nil for the client's address.
type source struct {
	attribute policy.Attribute
	label     string // of its keys in a Limiter
	get       func(*http.Request) string
}

type costOf struct {
	unit string
	of   func(*http.Request) int64
}

func sourceOf(a policy.Attribute, get func(*http.Request) string) Option {
	return func(o *options) {
		o.sources = append(o.sources, source{a, a.String() + ":", get})
	}
}

// User says who the caller is, "" for nobody, as the program knows it: from
// its session, not from what the client merely claims. [Policy] offers it as
// the attribute user.
//
// For [New] it is a source of keys, as are [Tenant], [Device], [Route], [Attr]
// and [ClientIP]: a request is limited by the first, in the order of the
// options, that it has. Without any source that is the client's address;
// requests that have none of the sources share one bucket. A key is the source
// and the value, "user:alice" or "client.ip:203.0.113.9", so that a user who is
// called 203.0.113.9 is nobody's address; so it is known to the Limiter.
func User(of func(*http.Request) string) Option {
	return sourceOf(policy.Attribute{Kind: policy.User}, of)
}

// Tenant says which customer the caller belongs to, "" for none: the
// attribute tenant, and for [New] a source of keys.
func Tenant(of func(*http.Request) string) Option {
	return sourceOf(policy.Attribute{Kind: policy.Tenant}, of)
}

// Device says which device the caller uses, "" for none: the attribute
// device, and for [New] a source of keys.
func Device(of func(*http.Request) string) Option {
	return sourceOf(policy.Attribute{Kind: policy.Device}, of)
}

// Route says which pattern of the program's router a request meets, "" for
// none: the attribute route, and for [New] a source of keys. Without it the
// route is the request's Pattern, which net/http's mux sets, so that it is
// known inside the mux only. To know it in front of a mux, ask it:
//
//	httplimit.Route(func(r *http.Request) string { _, pattern := mux.Handler(r); return pattern })
func Route(of func(*http.Request) string) Option {
	return sourceOf(policy.Attribute{Kind: policy.Route}, of)
}

// Attr offers an attribute of the program's own, attr.NAME, "" where a
// request has none; for [New] it is a source of keys. The name has no colon.
func Attr(name string, of func(*http.Request) string) Option {
	return sourceOf(policy.Attribute{Kind: policy.Own, Name: name}, of)
}

// ClientIP makes the client's address a source of keys for [New]; see [User]
// for the order, [TrustedProxies] and [IPv6Prefix] for which address it is.
// [Policy] has the attribute client.ip always.
func ClientIP() Option {
	return sourceOf(policy.Attribute{Kind: policy.ClientIP}, nil)
}

// IPv6Prefix groups the IPv6 clients of [New] by so many bits, 32 to 128
// (values beyond count as those). The default is 64: a subscriber usually has
// a whole /64, and a fresh address for every request costs nothing. In a
// policy each rule's key says it (client.ip/56).
func IPv6Prefix(bits int) Option {
	return func(o *options) { o.prefix = max(32, min(bits, 128)) }
}

// TrustedProxies finds the client's address with r, and says by it which peers'
// headers are the attributes proxy.NAME of [Policy]: those proxies must set these
// themselves, and never pass on the client's. Without it, or with nil, the client is
// the peer and no header is believed.
func TrustedProxies(r *clientip.Resolver) Option {
	return func(o *options) { o.resolver = r }
}

// Claim looks up a claim of a token that the program has verified already:
// the attributes claim.NAME of [Policy]. New has no use of it.
func Claim(of func(r *http.Request, name string) (string, bool)) Option {
	return func(o *options) { o.claim = of }
}

// Cost says how many units of that name a request costs, in place of 1 or of
// what the rules for that unit say. A negative cost is answered with 400: it
// was computed from the request. For [New] only the first Cost counts, and
// unit names what its limit counts.
func Cost(unit string, of func(*http.Request) int64) Option {
	return func(o *options) { o.costs = append(o.costs, costOf{unit, of}) }
}

// A HeaderMode says on which answers the fields RateLimit-Policy and RateLimit
// are set. Retry-After is on every 429 that has one.
type HeaderMode uint8

const (
	// Always sets the fields on all answers. It is the default.
	Always HeaderMode = iota
	// Refusals sets them on refusals only.
	Refusals
	// Off never sets them.
	Off
)

// Headers says which answers carry the RateLimit fields.
func Headers(mode HeaderMode) Option {
	return func(o *options) { o.headers = mode }
}

// Denied answers refused requests in place of the problem body. Retry-After
// and the RateLimit fields are set already; status and body are answer's. The
// client that went away is not answered.
func Denied(answer func(http.ResponseWriter, *http.Request, Refusal)) Option {
	return func(o *options) { o.denied = answer }
}

// Logger logs refusals and faults of the store: of each second
// [policy.JournalLines] refusals, beyond them the first of each rule, and one
// fault. The next line of the rule tells how many were left out, and
// [policy.Engine.Close] of which no line has told. Without it nothing is logged.
func Logger(l *slog.Logger) Option {
	return func(o *options) { o.log = l }
}

// Name names the limit of [New] in answers and log lines; "default" if it is
// not given. Two middlewares in a row need two names. Rules of a policy have
// theirs. Characters that a structured field can't carry become "_".
func Name(name string) Option {
	return func(o *options) {
		b := []byte(name)
		for i, c := range b {
			if c < ' ' || c > '~' || c == '"' || c == '\\' {
				b[i] = '_'
			}
		}
		o.name = string(b)
	}
}

// NoVerdict keeps the verdict out of the request's context: policy.FromContext
// finds none, and a decision without fields allocates nothing.
func NoVerdict() Option {
	return func(o *options) { o.bare = true }
}

func optionsOf(opts []Option) options {
	o := options{name: "default", prefix: clientip.DefaultV6Bits}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// source returns what the program says of a, nil if it says nothing.
func (o *options) source(a policy.Attribute) *source {
	for i := range o.sources {
		if o.sources[i].attribute == a {
			return &o.sources[i]
		}
	}
	return nil
}
