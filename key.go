package spillgate

import (
	"encoding/binary"

	"github.com/spillgate/spillgate/internal/siphash"
)

// A Key names one caller within a [Space]: a 128-bit digest of its parts
// under a [Seed]. Among n keys the odds that any two share one are n²/2^129;
// [Memory] tells keys apart by the first 64 bits, so there they are n²/2^65:
// for a million keys 3 in 10^8.
type Key [2]uint64

// A Seed keys the digest of keys. Whoever lacks it can't aim two keys at one
// bucket. Nodes that share a store share a seed; a snapshot carries it. The
// zero Seed stands for none given: make one with [NewSeed] or [SeedFrom].
type Seed struct{ key siphash.Key }

// NewSeed returns a random seed.
func NewSeed() Seed { return Seed{siphash.NewKey()} }

// SeedFrom returns the seed with the given bytes, a secret of high entropy.
func SeedFrom(secret [16]byte) Seed { return Seed{siphash.KeyFrom(secret)} }

// Bytes returns the secret that s was made from.
func (s *Seed) Bytes() [16]byte { return s.key.Bytes() }

// Key digests an encoding made with [AppendPart], so that different parts
// never give the same encoding.
func (s *Seed) Key(encoded []byte) Key {
	lo, hi := siphash.Sum128(&s.key, encoded)
	return Key{lo, hi}
}

// AppendPart appends one part of a key to dst: its kind, its length and its
// bytes, which may be any. Parts of different kinds never meet: a user named
// 203.0.113.9 is not the address 203.0.113.9.
func AppendPart[T ~string | ~[]byte](dst []byte, kind string, part T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(kind)))
	dst = append(dst, kind...)
	dst = binary.AppendUvarint(dst, uint64(len(part)))
	return append(dst, part...)
}
