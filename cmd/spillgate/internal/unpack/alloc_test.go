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
