package siphash

import (
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// slow is SipHash-c-d as its paper words it, with nothing done for speed, for
// an output of size bytes: 8 or 16. It is what the fast code is held against,
// and is itself held against the published vectors.
func slow(c, d, size int, key [KeySize]byte, p []byte) []byte {
	k0 := binary.LittleEndian.Uint64(key[:8])
	k1 := binary.LittleEndian.Uint64(key[8:])
	v := [4]uint64{
		k0 ^ binary.BigEndian.Uint64([]byte("somepseu")),
		k1 ^ binary.BigEndian.Uint64([]byte("dorandom")),
		k0 ^ binary.BigEndian.Uint64([]byte("lygenera")),
		k1 ^ binary.BigEndian.Uint64([]byte("tedbytes")),
	}
	rounds := func(n int) {
		for range n {
			v[0] += v[1]
			v[2] += v[3]
			v[1] = bits.RotateLeft64(v[1], 13)
			v[3] = bits.RotateLeft64(v[3], 16)
			v[1] ^= v[0]
			v[3] ^= v[2]
			v[0] = bits.RotateLeft64(v[0], 32)
			v[2] += v[1]
			v[0] += v[3]
			v[1] = bits.RotateLeft64(v[1], 17)
			v[3] = bits.RotateLeft64(v[3], 21)
			v[1] ^= v[2]
			v[3] ^= v[0]
			v[2] = bits.RotateLeft64(v[2], 32)
		}
	}
	if size == 16 {
		v[1] ^= 0xee
	}
	padded := append([]byte(nil), p...)
	for len(padded)%8 != 7 {
		padded = append(padded, 0)
	}
	padded = append(padded, byte(len(p)))
	for ; len(padded) > 0; padded = padded[8:] {
		m := binary.LittleEndian.Uint64(padded)
		v[3] ^= m
		rounds(c)
		v[0] ^= m
	}
	if size == 16 {
		v[2] ^= 0xee
	} else {
		v[2] ^= 0xff
	}
	rounds(d)
	out := binary.LittleEndian.AppendUint64(nil, v[0]^v[1]^v[2]^v[3])
	if size == 16 {
		v[1] ^= 0xdd
		rounds(d)
		out = binary.LittleEndian.AppendUint64(out, v[0]^v[1]^v[2]^v[3])
	}
	return out
}

// counting returns the bytes 0, 1, 2 … n-1.
func counting(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i)
	}
	return p
}

func fast64(key [KeySize]byte, p []byte) []byte {
	k := KeyFrom(key)
	return binary.LittleEndian.AppendUint64(nil, Sum64(&k, p))
}

func fast128(key [KeySize]byte, p []byte) []byte {
	k := KeyFrom(key)
	lo, hi := Sum128(&k, p)
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, lo), hi)
}

func TestPublishedVectors(t *testing.T) {
	type sum = func(key [KeySize]byte, p []byte) []byte
	plain := func(c, d, size int) sum {
		return func(key [KeySize]byte, p []byte) []byte { return slow(c, d, size, key, p) }
	}
	for _, tt := range []struct {
		name, vectors string
		sum           sum
	}{
		{"1-3, 64 bits", vectors13x64, fast64},
		{"1-3, 128 bits", vectors13x128, fast128},
		{"1-3, 64 bits, slow", vectors13x64, plain(1, 3, 8)},
		{"1-3, 128 bits, slow", vectors13x128, plain(1, 3, 16)},
		{"2-4, 64 bits, slow", vectors24x64, plain(2, 4, 8)},
		{"2-4, 128 bits, slow", vectors24x128, plain(2, 4, 16)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vectors := strings.Fields(tt.vectors)
			if len(vectors) != 64 {
				t.Fatalf("%d vectors, want 64", len(vectors))
			}
			key := [KeySize]byte(counting(KeySize))
			for n, want := range vectors {
				if got := hex.EncodeToString(tt.sum(key, counting(n))); got != want {
					t.Errorf("digest of %d bytes = %s, want %s", n, got, want)
				}
			}
		})
	}
}

// check holds all four functions against slow for one key and input.
func check(t *testing.T, key [KeySize]byte, p []byte) {
	t.Helper()
	k := KeyFrom(key)
	want := binary.LittleEndian.Uint64(slow(1, 3, 8, key, p))
	if got := Sum64(&k, p); got != want {
		t.Errorf("Sum64 of %d bytes = %#x, want %#x", len(p), got, want)
	}
	if got := Sum64String(&k, string(p)); got != want {
		t.Errorf("Sum64String of %d bytes = %#x, want %#x", len(p), got, want)
	}
	out := slow(1, 3, 16, key, p)
	wantLo, wantHi := binary.LittleEndian.Uint64(out), binary.LittleEndian.Uint64(out[8:])
	if lo, hi := Sum128(&k, p); lo != wantLo || hi != wantHi {
		t.Errorf("Sum128 of %d bytes = %#x %#x, want %#x %#x", len(p), lo, hi, wantLo, wantHi)
	}
	if lo, hi := Sum128String(&k, string(p)); lo != wantLo || hi != wantHi {
		t.Errorf("Sum128String of %d bytes = %#x %#x, want %#x %#x", len(p), lo, hi, wantLo, wantHi)
	}
}

// Beyond 255 bytes the length in the closing word wraps round.
func TestEveryLength(t *testing.T) {
	rnd := rand.NewChaCha8([32]byte{1})
	for n := range 258 {
		var key [KeySize]byte
		rnd.Read(key[:])
		p := make([]byte, n)
		rnd.Read(p)
		check(t, key, p)
	}
}

// The bytes around the input, in the same array, must not matter, nor the
// address it starts at.
func TestReadsNothingOutside(t *testing.T) {
	key := [KeySize]byte(counting(KeySize))
	for _, around := range []byte{0x00, 0xff} {
		for off := range 9 {
			for n := range 26 {
				array := make([]byte, off+n+9)
				for i := range array {
					array[i] = around
				}
				copy(array[off:], counting(n))
				check(t, key, array[off:off+n])
				check(t, key, array[off:off+n:off+n])
			}
		}
	}
}

func TestNilAndEmptyAreTheSame(t *testing.T) {
	k := KeyFrom([KeySize]byte(counting(KeySize)))
	want := Sum64(&k, nil)
	if got := Sum64(&k, []byte{}); got != want {
		t.Errorf("Sum64 of an empty slice = %#x, of nil %#x", got, want)
	}
	if got := Sum64String(&k, ""); got != want {
		t.Errorf("Sum64String of nothing = %#x, want %#x", got, want)
	}
	wantLo, wantHi := Sum128(&k, nil)
	if lo, hi := Sum128String(&k, ""); lo != wantLo || hi != wantHi {
		t.Errorf("Sum128String of nothing = %#x %#x, want %#x %#x", lo, hi, wantLo, wantHi)
	}
}

func TestKeyRoundTrip(t *testing.T) {
	b := [KeySize]byte(counting(KeySize))
	k := KeyFrom(b)
	if got := k.Bytes(); got != b {
		t.Errorf("KeyFrom(%x).Bytes() = %x", b, got)
	}
	n := NewKey()
	if KeyFrom(n.Bytes()) != n {
		t.Error("a new key does not survive its portable form")
	}
}

func TestNewKeysDiffer(t *testing.T) {
	seen := map[Key]bool{}
	for range 64 {
		k := NewKey()
		if seen[k] {
			t.Fatalf("NewKey gave %x twice", k.Bytes())
		}
		seen[k] = true
	}
}

// Every bit of the key must matter, in both widths.
func TestEveryKeyBitMatters(t *testing.T) {
	b := [KeySize]byte(counting(KeySize))
	seen64, seen128 := map[uint64]int{}, map[[2]uint64]int{}
	for bit := range 8*KeySize + 1 {
		c := b
		if bit < 8*KeySize {
			c[bit/8] ^= 1 << (bit % 8)
		}
		k := KeyFrom(c)
		lo, hi := Sum128String(&k, "10.0.0.1")
		if other, ok := seen64[Sum64String(&k, "10.0.0.1")]; ok {
			t.Errorf("64 bits: keys changed at bits %d and %d agree", bit, other)
		}
		if other, ok := seen128[[2]uint64{lo, hi}]; ok {
			t.Errorf("128 bits: keys changed at bits %d and %d agree", bit, other)
		}
		seen64[Sum64String(&k, "10.0.0.1")] = bit
		seen128[[2]uint64{lo, hi}] = bit
	}
}

func TestNoAllocation(t *testing.T) {
	k := NewKey()
	p := counting(300)
	s := string(p)
	var sink uint64
	for _, tt := range []struct {
		name string
		run  func(n int)
	}{
		{"Sum64", func(n int) { sink += Sum64(&k, p[:n]) }},
		{"Sum64String", func(n int) { sink += Sum64String(&k, s[:n]) }},
		{"Sum128", func(n int) { lo, hi := Sum128(&k, p[:n]); sink += lo ^ hi }},
		{"Sum128String", func(n int) { lo, hi := Sum128String(&k, s[:n]); sink += lo ^ hi }},
		{"KeyFrom and Bytes", func(n int) {
			b := [KeySize]byte(p)
			b[0] = byte(n)
			k := KeyFrom(b)
			b = k.Bytes()
			sink += uint64(b[0])
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, n := range []int{0, 1, 7, 8, 16, 33, 300} {
				if got := testing.AllocsPerRun(100, func() { tt.run(n) }); got != 0 {
					t.Errorf("%v allocations for %d bytes, want none", got, n)
				}
			}
		})
	}
}

func FuzzAgainstSlow(f *testing.F) {
	for _, n := range []int{0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 255, 256} {
		f.Add(counting(KeySize), counting(n))
	}
	f.Add([]byte{}, []byte("client.ip=2001:db8::1"))
	f.Fuzz(func(t *testing.T, key, p []byte) {
		var b [KeySize]byte
		copy(b[:], key)
		check(t, b, p)
		k := KeyFrom(b)
		if got := k.Bytes(); got != b {
			t.Errorf("KeyFrom(%x).Bytes() = %x", b, got)
		}
	})
}

var result uint64

// Beside each other: one input over and over (rate), and each input chosen by
// the digest before it (latency), which is what a table's lookup feels.
func BenchmarkSum(b *testing.B) {
	k := KeyFrom([KeySize]byte(counting(KeySize)))
	seed := maphash.MakeSeed()
	// Each kind has its own loops, so that the hash is called and not passed in.
	for _, n := range []int{4, 8, 16, 32, 64, 256} {
		p := make([]string, 64)
		for i := range p {
			p[i] = strings.Repeat(string(rune('!'+i)), n)
		}
		s := p[0]
		b.Run("rate/bytes="+strconv.Itoa(n)+"/Sum64String", func(b *testing.B) {
			var h uint64
			for b.Loop() {
				h += Sum64String(&k, s)
			}
			result = h
		})
		b.Run("rate/bytes="+strconv.Itoa(n)+"/Sum128String", func(b *testing.B) {
			var h uint64
			for b.Loop() {
				lo, hi := Sum128String(&k, s)
				h += lo ^ hi
			}
			result = h
		})
		b.Run("rate/bytes="+strconv.Itoa(n)+"/maphash.String", func(b *testing.B) {
			var h uint64
			for b.Loop() {
				h += maphash.String(seed, s)
			}
			result = h
		})
		b.Run("latency/bytes="+strconv.Itoa(n)+"/Sum64String", func(b *testing.B) {
			var h uint64
			for b.Loop() {
				h = Sum64String(&k, p[h%64])
			}
			result = h
		})
		b.Run("latency/bytes="+strconv.Itoa(n)+"/Sum128String", func(b *testing.B) {
			var h uint64
			for b.Loop() {
				lo, hi := Sum128String(&k, p[h%64])
				h = lo ^ hi
			}
			result = h
		})
		b.Run("latency/bytes="+strconv.Itoa(n)+"/maphash.String", func(b *testing.B) {
			var h uint64
			for b.Loop() {
				h = maphash.String(seed, p[h%64])
			}
			result = h
		})
	}
}
