package spillgate_test

import (
	"fmt"
	"testing"

	"github.com/spillgate/spillgate"
)

func TestLimiterSmoke(t *testing.T) {
	l := spillgate.Must("1/10s burst 10")
	defer l.Close()
	for i := range 12 {
		d := l.Take("k", 1)
		if d.Allowed != (i < 10) {
			t.Fatalf("take %d: %+v", i, d)
		}
	}
	for i := range 100000 {
		if !l.Allow(fmt.Sprint(i)) {
			t.Fatal(i)
		}
	}
	t.Logf("%+v", l.Stats())
	if l.Allow("k") {
		t.Fatal("k")
	}
}

func BenchmarkHot(b *testing.B) {
	l := spillgate.Must("1000000000/s burst 1000000000")
	for b.Loop() {
		l.Allow("203.0.113.9:12345")
	}
}

func BenchmarkHotTake(b *testing.B) {
	l := spillgate.Must("1000000000/s burst 1000000000")
	for b.Loop() {
		l.Take("203.0.113.9:12345", 1)
	}
}
