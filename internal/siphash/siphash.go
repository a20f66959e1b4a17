// Package siphash is SipHash-1-3: a keyed hash for short inputs whose results
// nobody without the key can steer, so that a flood of chosen keys does not
// collide. Unlike hash/maphash its key can be kept, so a table that was saved
// can be read again, and processes that share a key agree on every digest.
//
// The algorithm is that of Aumasson and Bernstein, "SipHash: a fast
// short-input PRF" (2012), with one compression round and three finalisation
// rounds; the 128-bit form is the one their reference implementation adds.
// It tells keys apart and spreads them; it is not a signature.
package siphash

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// KeySize is the length in bytes of a key in its portable form.
const KeySize = 16

// The constants that the key is mixed with: "somepseudorandomlygeneratedbytes".
const (
	c0 = 0x736f6d6570736575
	c1 = 0x646f72616e646f6d
	c2 = 0x6c7967656e657261
	c3 = 0x7465646279746573
)

// Key is a secret key, ready for use: it holds what the hash's first steps
// come to, since they see nothing but the key. It is 48 bytes long, which is
// why the functions take a pointer; they never change it, so one Key serves
// any number of goroutines. Keys can be compared with ==. Make one with NewKey
// or KeyFrom; the zero value is not a key, equals none, and its digests mean
// nothing.
type Key struct {
	v0, v1 uint64 // after upper, for 64 bits of output
	w0, w1 uint64 // after upper, for 128 bits of output
	v2, v3 uint64
}

// NewKey returns a random key from crypto/rand.
func NewKey() Key {
	var b [KeySize]byte
	rand.Read(b[:]) // never fails: it ends the program rather than return an error
	return KeyFrom(b)
}

// KeyFrom returns the key with the given portable form, in the byte order of
// the reference implementation. It costs as much as a digest of a short input,
// so keep what it returns.
func KeyFrom(b [KeySize]byte) Key {
	k0 := binary.LittleEndian.Uint64(b[:8])
	k1 := binary.LittleEndian.Uint64(b[8:])
	v0, v1 := upper(k0^c0, k1^c1)
	w0, w1 := upper(k0^c0, k1^c1^0xee)
	return Key{v0: v0, v1: v1, w0: w0, w1: w1, v2: k0 ^ c2, v3: k1 ^ c3}
}

// Bytes returns the portable form of k. Whoever knows it can choose inputs
// that collide, so it is to be kept as a secret.
func (k Key) Bytes() (b [KeySize]byte) {
	binary.LittleEndian.PutUint64(b[:8], k.v2^c2)
	binary.LittleEndian.PutUint64(b[8:], k.v3^c3)
	return b
}

// Sum64 returns the 64-bit digest of p under k. As bytes, the reference
// implementation writes it in little-endian order.
func Sum64(k *Key, p []byte) uint64 {
	v0, v1, v2, v3 := k.v0, k.v1, k.v2, k.v3
	m := uint64(len(p)) << 56
	if len(p) >= 8 {
		for i := 0; i <= len(p)-8; i += 8 {
			v0, v1, v2, v3 = absorb(v0, v1, v2, v3, binary.LittleEndian.Uint64(p[i:i+8]))
		}
		m |= rest(p)
	} else {
		m |= few(p)
	}
	v0, v1, v2, v3 = absorb(v0, v1, v2, v3, m)
	v2 ^= 0xff
	v0, v1, v2, v3 = absorb(v0, v1, v2, v3, 0)
	v0, v1, v2, v3 = absorb(v0, v1, v2, v3, 0)
	v0, v1, v2, v3 = lower(v0, v1, v2, v3)
	return v0 ^ v3 ^ v1 ^ v2 // in this order the compiler sees that v0 cancels out
}

// Sum64String returns what Sum64 does for the bytes of s.
func Sum64String(k *Key, s string) uint64 {
	return Sum64(k, []byte(s)) // not copied: Sum64 neither keeps nor changes it
}

// Sum128 returns the 128-bit digest of p under k. As bytes, the reference
// implementation writes lo and then hi, each in little-endian order. Neither
// half is the 64-bit digest.
func Sum128(k *Key, p []byte) (lo, hi uint64) {
	v0, v1, v2, v3 := k.w0, k.w1, k.v2, k.v3
	m := uint64(len(p)) << 56
	if len(p) >= 8 {
		for i := 0; i <= len(p)-8; i += 8 {
			v0, v1, v2, v3 = absorb(v0, v1, v2, v3, binary.LittleEndian.Uint64(p[i:i+8]))
		}
		m |= rest(p)
	} else {
		m |= few(p)
	}
	v0, v1, v2, v3 = absorb(v0, v1, v2, v3, m)
	v2 ^= 0xee
	v0, v1, v2, v3 = absorb(v0, v1, v2, v3, 0)
	v0, v1, v2, v3 = absorb(v0, v1, v2, v3, 0)
	v0, v1, v2, v3 = lower(v0, v1, v2, v3)
	lo = v0 ^ v1 ^ v2 ^ v3
	v0, v1 = upper(v0, v1^0xdd)
	v0, v1, v2, v3 = absorb(v0, v1, v2, v3, 0)
	v0, v1, v2, v3 = absorb(v0, v1, v2, v3, 0)
	v0, v1, v2, v3 = lower(v0, v1, v2, v3)
	return lo, v0 ^ v3 ^ v1 ^ v2
}

// Sum128String returns what Sum128 does for the bytes of s.
func Sum128String(k *Key, s string) (lo, hi uint64) {
	return Sum128(k, []byte(s)) // not copied: Sum128 neither keeps nor changes it
}

// SipHash's round is upper and then lower. A word of input enters v3 before a
// round and v0 after it, so upper, which touches neither v2 nor v3, need not
// wait for the word: it is done one round ahead, and for the first round it is
// done in the key.

func upper(v0, v1 uint64) (uint64, uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	return bits.RotateLeft64(v0, 32), v1
}

func lower(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	return v0, v1, bits.RotateLeft64(v2, 32), v3
}

// absorb takes in one word: it ends the round that upper has begun and begins
// the next. With m zero it is a round of finalisation.
func absorb(v0, v1, v2, v3, m uint64) (uint64, uint64, uint64, uint64) {
	v0, v1, v2, v3 = lower(v0, v1, v2, v3^m)
	v0 = (v0 ^ m) + v1 // upper, spelt out: a call would make absorb too long to inline
	return bits.RotateLeft64(v0, 32), bits.RotateLeft64(v1, 13) ^ v0, v2, v3
}

// The closing word is the bytes after the last whole word, with the length of
// the input, modulo 256, in the top byte.

// rest returns the bytes after the last whole word of p, which has at least 8.
// It reads the last 8 and shifts out what was absorbed before: in two shifts,
// so that neither is by 64 when nothing is left over.
func rest(p []byte) uint64 {
	return binary.LittleEndian.Uint64(p[len(p)-8:]) >> 8 >> (8 * (^uint(len(p)) & 7))
}

// few returns the bytes of p, which has fewer than 8, by reads that overlap.
func few(p []byte) uint64 {
	switch n := len(p); {
	case n >= 4:
		return uint64(binary.LittleEndian.Uint32(p)) |
			uint64(binary.LittleEndian.Uint32(p[n-4:]))<<(8*uint(n-4)&63)
	case n >= 2:
		return uint64(binary.LittleEndian.Uint16(p)) | uint64(p[n-1])<<(8*uint(n-1)&63)
	case n == 1:
		return uint64(p[0])
	}
	return 0
}
