package unpack_test

import (
	"testing"
)

// FuzzUnpack : whatever an upstream sends, in whatever pieces, neither stops the
// gateway nor spoils what is read next.
func FuzzUnpack(f *testing.F) {
	good := map[bool][]byte{true: pack(f, "br", events...), false: pack(f, "zstd", events...)}
	for br, packed := range good {
		f.Add(br, packed, 7)
		f.Add(br, packed[:len(packed)/2], 1)
		f.Add(br, append(packed[:len(packed):len(packed)], packed...), 50)
	}
	f.Add(true, []byte{0x11, 0xff, 0xff}, 1) // a large window
	f.Add(false, []byte("\x28\xb5\x2f\xfd\x00\xff"), 1)
	f.Fuzz(func(t *testing.T, br bool, packed []byte, size int) {
		e := engine(t)
		encoding := map[bool]string{true: "br", false: "zstd"}[br]
		c := begin(e, encoding)
		for size = max(1, size); len(packed) > 0; {
			n := min(size, len(packed))
			c.Write(packed[:n])
			packed = packed[n:]
		}
		c.end(t)
		before := e.UsageTotals()[0].Told
		c = begin(e, encoding)
		c.Write(good[br])
		c.end(t)
		if got := e.UsageTotals()[0].Told; got != before+1 {
			t.Errorf("%d told, then %d", before, got)
		}
	})
}
