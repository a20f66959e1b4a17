//go:build !race

package unpack_test

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/policy"
)

// TestAllocOfBombs : what unpacks to far more than was sent takes no more memory
// than a window, and what is beyond 64 MiB is not unpacked.
func TestAllocOfBombs(t *testing.T) {
	for _, encoding := range []string{"br", "zstd"} {
		var b bytes.Buffer
		z := packer(t, encoding, &b)
		for _, part := range []string{"data: ", strings.Repeat("0", 80<<20)} {
			if _, err := z.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		e := engine(t)
		c := begin(e, encoding)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c.Write(b.Bytes())
		c.end(t)
		runtime.ReadMemStats(&after)
		if got, want := e.UsageTotals()[0], (policy.UsageTotals{Opaque: 1, Reserved: 1000}); got != want || b.Len() > 1<<20 {
			t.Errorf("%s: %d bytes sent, %+v", encoding, b.Len(), got)
		}
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 40<<20 {
			t.Errorf("%s: %d bytes taken", encoding, taken)
		} else {
			t.Logf("%s: %d bytes taken for %d sent", encoding, taken, b.Len())
		}
	}
}

// TestAllocOfManyBombs : they share what may be held, and those beyond it are not
// read. When they have ended others are.
func TestAllocOfManyBombs(t *testing.T) {
	for encoding, most := range map[string]int{"br": 16, "zstd": 32} {
		var b bytes.Buffer
		z := packer(t, encoding, &b)
		if _, err := z.Write([]byte(`data: {"x":"` + strings.Repeat("0", 17<<20))); err != nil {
			t.Fatal(err)
		}
		if err := z.Flush(); err != nil {
			t.Fatal(err)
		}
		e := engine(t)
		var open []*call
		for range most + 2 {
			c := begin(e, encoding)
			c.Write(b.Bytes())
			open = append(open, c)
		}
		var now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&now)
		for _, c := range open {
			c.end(t)
		}
		if got := e.UsageTotals()[0]; got.Opaque != 2 {
			t.Errorf("%s: %d of %d were not read, want 2", encoding, got.Opaque, most+2)
		}
		if now.HeapAlloc > 400<<20 {
			t.Errorf("%s: %d bytes held", encoding, now.HeapAlloc)
		}
		after := begin(e, encoding)
		after.Write(pack(t, encoding, events...))
		after.end(t)
		if got := e.UsageTotals()[0]; got.Told != 1 {
			t.Errorf("%s: afterwards: %+v", encoding, got)
		}
	}
}
