package main

import (
	"io"
	"time"
)

// A limiter is one contestant at work: it says whether a request by key may
// pass now. Each contestant is called through this interface, floors and the
// null row too, so that the call itself costs all of them the same.
type limiter interface {
	Allow(key string) bool
}

// A setup is what a contestant is opened with: one limit for every key, and
// what a program would tell a keyed limiter about its keys.
type setup struct {
	every  time.Duration // time to earn one unit
	burst  int64         // units that fit at once
	window time.Duration // the same limit for those that count windows: burst units a window
	keys   int           // the cap, for those that have one
	idle   time.Duration // a key idle for so long may be forgotten, for those that sweep
	sweep  time.Duration // how often they look
}

// steady is a limit that no workload reaches: each key stays within it, yet
// one request leaves traces for ten seconds, so that no table may forget a
// key while it is measured. Sweepers sleep.
func steady(keys int) setup {
	return setup{every: 10 * time.Second, burst: 1e8, window: time.Hour, keys: keys, idle: 12 * time.Hour, sweep: 6 * time.Hour}
}

// fleeting is a limit under which every key is as good as new half a second
// after its last request, with sweepers that look each half second.
func fleeting(keys int) setup {
	const moment = 500 * time.Millisecond
	return setup{every: moment, burst: 1e8, window: moment, keys: keys, idle: moment, sweep: moment}
}

// A kind says what part a contestant plays.
type kind uint8

const (
	floor kind = iota // what cannot be beaten, or only by giving something up
	peer              // a library that others publish
	own               // what this repository publishes
)

// A contestant is one row of the tables.
type contestant struct {
	name   string
	module string // of a peer: its module path, to print the version that was built in
	kind   kind
	note   string // what a reader has to know to compare fairly

	keyed  bool // tells keys apart; the others are one limiter for all
	exact  bool // keeps a state of its own for every key, as ours does
	stores bool // remembers keys, so that its memory is worth measuring
	grows  bool // has a cap (setup.keys) and grows up to it; the others have no cap, or are of fixed size
	even   bool // no burst: it paces (or refuses) what comes closer than one interval

	open func(setup) (limiter, error)
}

// shut ends what a contestant runs in the background, if anything.
func shut(l limiter) {
	if c, ok := l.(io.Closer); ok {
		c.Close() // nothing is lost if it fails: the process ends soon
	}
}

// null does nothing: the harness alone, and the row that tells whether a core
// was stolen.
type null struct{}

func (null) Allow(string) bool { return true }

const nullName = "null"

// lineup lists all contestants in the order of the tables.
func lineup() []contestant {
	all := []contestant{{
		name: nullName, kind: floor, keyed: true,
		note: "the harness alone",
		open: func(setup) (limiter, error) { return null{}, nil },
	}}
	all = append(all, floors()...)
	all = append(all, singlePeers()...)
	all = append(all, recipePeers()...)
	all = append(all, keyedPeers()...)
	return append(all, ours()...)
}
