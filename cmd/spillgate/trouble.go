package main

import (
	"context"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
)

// troubleEvery is how often the numbers of a store are looked at for trouble.
const troubleEvery = time.Minute

// A trouble is that part of the numbers of a store, and of leases on it, which stays
// as it is while all is well.
type trouble struct {
	store             redisstore.Stats
	errors, forfeited uint64
}

// troubleOf returns what there was so far; leased may be nil.
func troubleOf(store redisstore.Stats, leased *spillgate.LeaseStats) (t trouble) {
	t.store.Faults = store.Faults
	t.store.Faults[redisstore.NoScript] = 0 // as at a start and after a flush
	t.store.Opened, t.store.Shut = store.Opened, store.Shut
	t.store.OverDenied, t.store.Late, t.store.Dropped = store.OverDenied, store.Late, store.Dropped
	if leased != nil {
		t.errors, t.forfeited = leased.Errors, leased.Forfeited
	}
	return t
}

// tellTrouble calls tell after each minute in which there was more trouble, until ctx
// ends.
func tellTrouble(ctx context.Context, now func() trouble, tell func()) {
	tick := time.NewTicker(troubleEvery)
	defer tick.Stop()
	for was := now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if t := now(); t != was {
			was = t
			tell()
		}
	}
}

// tellingTrouble runs tellTrouble, and returns what ends it.
func tellingTrouble(now func() trouble, tell func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); tellTrouble(ctx, now, tell) }()
	return func() { cancel(); <-ended }
}
