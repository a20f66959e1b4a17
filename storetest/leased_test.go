package storetest_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/storetest"
)

func leased(o spillgate.LeaseOptions) func(*testing.T) spillgate.Store {
	return func(t *testing.T) spillgate.Store {
		m := spillgate.NewMemory()
		o.Nodes, o.Mixed = 1, true
		l, err := spillgate.NewLeased(m, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			m.Close()
		})
		return l
	}
}

func TestLeased(t *testing.T) {
	storetest.Run(t, leased(spillgate.LeaseOptions{Share: 1}), storetest.Loose())
}

// Where blocks have no room for a unit, what is remembered changes no answer
// but for a nanosecond.
func TestLeasedRemembers(t *testing.T) {
	storetest.Run(t, leased(spillgate.LeaseOptions{Share: 1e-6}), storetest.Late(time.Nanosecond))
}
