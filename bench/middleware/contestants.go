package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/spillgate/spillgate"
	ours "github.com/spillgate/spillgate/httplimit"
	"github.com/spillgate/spillgate/policy"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
)

// A contestant is a handler that is limited, or one that is not.
type contestant struct {
	name    string
	fields  string // what it tells a client of its limit
	peer    bool   // of others, and writes fields
	refuses bool   // each request, and so the limit is another
	long    bool   // far from deciding a claim, and too long for -short
	// open makes the handler anew, with nobody known to it; end ends what it
	// runs in the background.
	open func() (h http.Handler, end func(), err error)
}

const (
	bareName       = "bare handler"
	ourRule        = "ours, one rule"
	ourBare        = "ours, one rule, no fields, no verdict"
	ourBareLimiter = "ours, a Limiter, no fields"
)

// trivial is what is limited.
var trivial = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusOK) })

// A limit that no workload reaches: so many a window.
const (
	plenty = 1_000_000_000
	window = time.Hour
)

const (
	standard = "RateLimit-Policy, RateLimit"
	legacy   = "X-RateLimit-Limit, -Remaining, -Reset"
)

func lineup() []contestant {
	everybody := rule("everybody", plenty, "client.ip")
	return append([]contestant{
		{name: bareName, open: func() (http.Handler, func(), error) { return trivial, func() {}, nil }},
		{name: "ours, a Limiter", fields: standard, open: limited()},
		{name: ourBareLimiter, open: limited(ours.Headers(ours.Off))},
		{name: ourRule, fields: standard, open: policed(nil, everybody)},
		{name: "ours, one rule, no verdict", fields: standard, open: policed([]ours.Option{ours.NoVerdict()}, everybody)},
		{name: ourBare, open: policed([]ours.Option{ours.Headers(ours.Off), ours.NoVerdict()}, everybody)},
		{
			name: "ours, five rules", fields: standard, long: true,
			open: policed(nil, everybody, rule("host", plenty, "host"), rule("page", plenty, "client.ip", "path"),
				rule("method", plenty, "client.ip", "method"), rule("all", plenty)),
		},
		{
			name: "ours, one rule, refusing", fields: standard + ", Retry-After, a problem", refuses: true,
			open: policed(nil, rule("nobody", 1, "client.ip")),
		},
	}, peers()...)
}

func rule(name string, rate int64, key ...string) policy.Rule {
	r := policy.Rule{Name: name, Limit: spillgate.Limit{Rate: rate, Period: window, Burst: rate}}
	for _, text := range key {
		part, err := policy.ParsePart(text)
		if err != nil {
			part = policy.Part{} // which Compile refuses
		}
		r.Key = append(r.Key, part)
	}
	return r
}

func policed(opts []ours.Option, rules ...policy.Rule) func() (http.Handler, func(), error) {
	return func() (http.Handler, func(), error) {
		p, err := policy.Compile(rules)
		if err != nil {
			return nil, nil, err
		}
		store := spillgate.NewMemory()
		return ours.Policy(policy.NewEngine(p, store), opts...)(trivial), func() { _ = store.Close() }, nil
	}
}

func limited(opts ...ours.Option) func() (http.Handler, func(), error) {
	return func() (http.Handler, func(), error) {
		lim, err := spillgate.New(spillgate.Limit{Rate: plenty, Period: window, Burst: plenty})
		if err != nil {
			return nil, nil, err
		}
		return ours.New(lim, opts...)(trivial), func() { _ = lim.Close() }, nil
	}
}

// peers lists the middleware of others, each as its documents have it.
func peers() []contestant {
	return []contestant{
		{name: "go-chi/httprate", fields: legacy, peer: true, open: func() (http.Handler, func(), error) {
			return httprate.LimitBy(plenty, window, byIP)(trivial), func() {}, nil
		}},
		{name: "didip/tollbooth", fields: "RateLimit-Limit, -Remaining, -Reset", peer: true, long: true, open: func() (http.Handler, func(), error) {
			lim := tollbooth.NewLimiter(plenty, &tollboothlimiter.ExpirableOptions{DefaultExpirationTTL: window})
			lim.SetBurst(plenty).SetIPLookup(tollboothlimiter.IPLookup{Name: "RemoteAddr"})
			return tollbooth.LimitHandler(lim, trivial), func() {}, nil
		}},
		{name: "throttled", fields: legacy, peer: true, open: openThrottled},
		{name: "ulule/limiter", fields: legacy, peer: true, long: true, open: func() (http.Handler, func(), error) {
			store := ululememory.NewStoreWithOptions(ulule.StoreOptions{Prefix: ulule.DefaultPrefix, CleanUpInterval: window})
			return stdlib.NewMiddleware(ulule.New(store, ulule.Rate{Period: window, Limit: plenty})).Handler(trivial), func() {}, nil
		}},
		{name: "sethvargo/go-limiter", fields: legacy, peer: true, open: openSethvargo},
	}
}

// byIP is what httprate's documents advise: the address in its canonical form.
func byIP(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return httprate.CanonicalizeIP(host), err
}

func openThrottled() (http.Handler, func(), error) {
	store, err := memstore.NewCtx(0) // a plain map; with a cap it is an LRU
	if err != nil {
		return nil, nil, fmt.Errorf("throttled: %w", err)
	}
	lim, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerHour(plenty), MaxBurst: plenty - 1})
	if err != nil {
		return nil, nil, fmt.Errorf("throttled: %w", err)
	}
	m := throttled.HTTPRateLimiterCtx{RateLimiter: lim, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
	return m.RateLimit(trivial), func() {}, nil
}

func openSethvargo() (http.Handler, func(), error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: plenty, Interval: window, SweepInterval: window, SweepMinTTL: window})
	if err != nil {
		return nil, nil, fmt.Errorf("sethvargo: %w", err)
	}
	m, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc())
	if err != nil {
		return nil, nil, fmt.Errorf("sethvargo: %w", err)
	}
	return m.Handle(trivial), func() { _ = store.Close(context.Background()) }, nil
}
