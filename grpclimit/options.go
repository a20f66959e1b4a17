package grpclimit

import (
	"context"
	"log/slog"
	"time"

	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/policy"
)

// An Option shapes the interceptors of [Server].
type Option func(*options)

type options struct {
	sources  []source
	claim    func(context.Context, string) (string, bool)
	costs    []costOf
	resolver *clientip.Resolver
	headers  HeaderMode
	log      *slog.Logger
	future   func(*policy.Rule) (int64, bool)
	messages messages
	paths    policy.Paths // how the policy takes them
}

// A source says who is asking.
type source struct {
	attribute policy.Attribute
	get       func(context.Context) string
}

type costOf struct {
	unit string
	of   func(context.Context, any) int64
}

func sourceOf(a policy.Attribute, get func(context.Context) string) Option {
	return func(o *options) { o.sources = append(o.sources, source{a, get}) }
}

// User offers the attribute user: who the caller is, "" for nobody, as the
// program knows it, from an interceptor that stands before or the TLS
// certificate of the peer, and not from what the client merely claims.
func User(of func(context.Context) string) Option {
	return sourceOf(policy.Attribute{Kind: policy.User}, of)
}

// Tenant offers the attribute tenant: which customer the caller belongs to, ""
// for none.
func Tenant(of func(context.Context) string) Option {
	return sourceOf(policy.Attribute{Kind: policy.Tenant}, of)
}

// Device offers the attribute device: which device the caller uses, "" for
// none.
func Device(of func(context.Context) string) Option {
	return sourceOf(policy.Attribute{Kind: policy.Device}, of)
}

// Attr offers an attribute of the program's own, attr.NAME, "" where a call has
// none.
func Attr(name string, of func(context.Context) string) Option {
	return sourceOf(policy.Attribute{Kind: policy.Own, Name: name}, of)
}

// Claim looks up a claim of a token that the program has verified already: the
// attributes claim.NAME.
func Claim(of func(ctx context.Context, name string) (string, bool)) Option {
	return func(o *options) { o.claim = of }
}

// Cost says how many units of that name a message costs, in place of what the
// rules for that unit say. msg is the request; nil when a stream is opened, for
// there is none yet. A negative cost is answered with INVALID_ARGUMENT.
func Cost(unit string, of func(ctx context.Context, msg any) int64) Option {
	return func(o *options) { o.costs = append(o.costs, costOf{unit, of}) }
}

// TrustedProxies finds the client's address with r, which reads the metadata
// as the header fields that proxies set. Without it, or with nil, the client is
// the peer and no metadata is believed.
func TrustedProxies(r *clientip.Resolver) Option {
	return func(o *options) { o.resolver = r }
}

// A HeaderMode says which answers carry the fields RateLimit-Policy and
// RateLimit (draft-ietf-httpapi-ratelimit-headers-11) in their header metadata.
type HeaderMode uint8

const (
	// Off sends none. It is the default: a refusal says all in its details.
	Off HeaderMode = iota
	// Refusals sends them with refusals.
	Refusals
	// Always sends them with every answer.
	Always
)

// Headers says which answers carry the RateLimit fields.
func Headers(mode HeaderMode) Option {
	return func(o *options) { o.headers = mode }
}

// Logger logs refusals and faults of the store: of each second
// [policy.JournalLines] refusals, beyond them the first of each rule, and one
// fault. The next line of the rule tells how many were left out, and
// [policy.Engine.Close] of which no line has told. Of metadata only what the key of the rule is made of is logged, in at most 256 bytes, and
// secrets as fingerprints. Without it nothing is logged.
func Logger(l *slog.Logger) Option {
	return func(o *options) { o.log = l }
}

// FutureQuota says which rules are about to get another quota, and what it is:
// the future_quota_value of their violations.
func FutureQuota(of func(*policy.Rule) (int64, bool)) Option {
	return func(o *options) { o.future = of }
}

// messages says how the messages of a stream are charged.
type messages struct {
	unit string
	most time.Duration
}

// Messages charges each message that a stream receives to the rules that count
// unit, as in
//
//   - {name: messages, key: client.ip, unit: messages, limit: 100/s}
//
// while opening it charges them nothing. A call with one request is one
// message. When such a rule refuses a message, the handler gets the refusal
// from RecvMsg, and the stream ends with it whatever the handler returns. What
// a message was charged is not given back, also if the rule counts failures.
func Messages(unit string) Option {
	return func(o *options) { o.messages = messages{unit: unit} }
}

// ShapedMessages is [Messages], but a message that comes too early is held
// until it fits, if that is within most and the deadline of the call. A stream
// that is held reads no further, and so holds its sender back.
func ShapedMessages(unit string, most time.Duration) Option {
	return func(o *options) { o.messages = messages{unit, most} }
}
