package redisstore

import (
	"errors"
	"fmt"
	"time"
)

// ErrClient is wrapped by the error about a client that the store can't use.
var ErrClient = errors.New("unfit client")

// ErrOption is wrapped by the error about an option that can't be.
var ErrOption = errors.New("impossible option")

// DefaultBudget is how long a Take or Settle may take: 20 ms.
const DefaultBudget = 20 * time.Millisecond

// DefaultPrefix begins every key. The number is that of the layout of keys and
// values, which another one would have to change.
const DefaultPrefix = "sg1:"

// DefaultFlights is how many calls to one server are under way at once.
const DefaultFlights = 2

// DefaultRemember is for how long a refusal is remembered at most: a second.
const DefaultRemember = time.Second

type options struct {
	prefix   string
	budget   time.Duration
	flights  int
	remember time.Duration
	watch    func(server string, open bool, why Fault)

	otherSeed func()
}

// An Option shapes a [Store].
type Option func(*options)

// Prefix begins every key in place of [DefaultPrefix]. A part in braces, as in
// "{shop}:", is a hash tag: all keys are in one slot of a cluster, and so every
// request is one call, at the price that one server has all the work.
func Prefix(p string) Option { return func(o *options) { o.prefix = p } }

// Budget is how long a Take or Settle may take, above 0, in place of [DefaultBudget],
// with all its calls together. Nine tenths of it are waited for a server; then the answer is an error that wraps
// [spillgate.ErrUnavailable], and it is there in time also where a processor is
// busy.
func Budget(d time.Duration) Option { return func(o *options) { o.budget = d } }

// Flights is how many calls to one server are under way at once at most, at least 1,
// in place of [DefaultFlights]. Requests that come meanwhile go together with the next
// one, which starts beside others when it has as much to carry.
func Flights(n int) Option { return func(o *options) { o.flights = n } }

// Remember is for how long at most a refusal is remembered, in place of
// [DefaultRemember]: until then, or until it is time to come back, a key that
// was refused is refused again without a round trip. 0 remembers nothing.
func Remember(d time.Duration) Option { return func(o *options) { o.remember = d } }

// Watch has f told when a server is not asked any more, and why, and when it is
// again. The server is "" if there is only one, and "cluster" while no server of a
// cluster was ever reached. f must not block.
func Watch(f func(server string, open bool, why Fault)) Option {
	return func(o *options) { o.watch = f }
}

// OtherSeed has f told when the server is seen to keep another seed than [Store.Seed]
// returned, as after it lost all and somebody started before the seed was put back:
// they count apart from this store until one of both is started again. f must not block.
func OtherSeed(f func()) Option { return func(o *options) { o.otherSeed = f } }

func optionsOf(opts []Option) (options, error) {
	o := options{prefix: DefaultPrefix, budget: DefaultBudget, flights: DefaultFlights, remember: DefaultRemember, watch: func(string, bool, Fault) {}, otherSeed: func() {}}
	for _, f := range opts {
		f(&o)
	}
	switch {
	case o.budget <= 0:
		return o, fmt.Errorf("redisstore: %w: budget %s: must be above 0", ErrOption, o.budget)
	case o.remember < 0:
		return o, fmt.Errorf("redisstore: %w: remember %s: must not be negative", ErrOption, o.remember)
	case o.flights < 1:
		return o, fmt.Errorf("redisstore: %w: flights %d: must be at least 1", ErrOption, o.flights)
	case o.prefix == "":
		return o, fmt.Errorf("redisstore: %w: prefix %q: must not be empty, so that the keys can be told from others", ErrOption, o.prefix)
	}
	return o, nil
}
