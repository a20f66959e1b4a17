package main

import (
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/redisstore"
)

// TestTrouble: a minute in which something went wrong is told at its end, and none
// that was like the one before.
func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store redisstore.Stats
		var leased spillgate.LeaseStats
		var told atomic.Int32
		var mu sync.Mutex
		stop := tellingTrouble(func() trouble {
			mu.Lock()
			defer mu.Unlock()
			return troubleOf(store, &leased)
		}, func() { told.Add(1) })
		defer stop()
		synctest.Wait()
		for _, step := range []struct {
			what string
			do   func()
			told bool
		}{
			{"nothing", func() {}, false},
			{"calls", func() { store.Calls, store.Gathered, store.Refused, store.Remembered = 9, 20, 3, 2 }, false},
			{"leases at work", func() { leased.Here, leased.Asked, leased.Lapsed, leased.Held = 9, 2, 4, 6 }, false},
			{"a script that was loaded", func() { store.Faults[redisstore.NoScript]++ }, false},
			{"a fault", func() { store.Faults[redisstore.TimedOut]++ }, true},
			{"nothing more", func() {}, false},
			{"a breaker opens", func() { store.Opened, store.Open = 1, 1 }, true},
			{"requests without the store", func() { store.Shut += 100 }, true},
			{"and more of them", func() { store.Shut += 100 }, true},
			{"the server is back", func() { store.Open = 0 }, false},
			{"a correction waits", func() { store.Late = 1 }, true},
			{"it is dropped", func() { store.Late, store.Dropped = 0, 1 }, true},
			{"a give-back over slots", func() { store.OverDenied = 1 }, true},
			{"units are lost", func() { leased.Forfeited = 5 }, true},
			{"a lease that could not be asked for", func() { leased.Errors = 1 }, true},
		} {
			before := told.Load()
			mu.Lock()
			step.do()
			mu.Unlock()
			<-time.After(troubleEvery)
			synctest.Wait()
			if got := told.Load() - before; got != map[bool]int32{true: 1}[step.told] {
				t.Errorf("%s: told %d times, want it told: %t", step.what, got, step.told)
			}
		}
	})
}

// TestTroubleWithoutLeases: an exact store has no leases to tell of.
func TestTroubleWithoutLeases(t *testing.T) {
	st := redisstore.Stats{Dropped: 2}
	if got, want := troubleOf(st, nil), (trouble{store: st}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
