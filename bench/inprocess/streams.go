package main

import (
	"encoding/binary"
	"math/rand/v2"
	"unsafe"
)

// keySize is the length of every key, as of an IPv6 address or a UUID.
const keySize = 16

// cores is how many goroutines the wide workloads run.
const cores = 2

// A stream is keys end to end, in the order in which a workload asks for
// them. A server has a request's key at hand, in cache, when it decides:
// reading a stream in order is as cheap.
type stream string

func (s stream) len() int         { return len(s) / keySize }
func (s stream) key(i int) string { return string(s[i*keySize : (i+1)*keySize]) }

// Streams are the keys of all workloads; every contestant gets the same.
type streams struct {
	known   stream        // all keys there are, each once
	uniform [cores]stream // drawn from known, each as likely
	zipf    [cores]stream // drawn from known by Zipf's law, exponent 1.1
	fresh   [cores]stream // keys never seen before, each once
}

// newStreams draws keys: so many known ones, draws of them for each goroutine
// and fresh ones for each goroutine.
func newStreams(known, draws, fresh int) *streams {
	rnd := rand.New(rand.NewPCG(1, 2)) // the same in each run
	s := &streams{known: random(rnd, known)}
	law := rand.NewZipf(rnd, 1.1, 1, uint64(known-1))
	for g := range cores {
		s.uniform[g] = s.draw(draws, func() int { return rnd.IntN(known) })
		s.zipf[g] = s.draw(draws, func() int { return int(law.Uint64()) })
		s.fresh[g] = random(rnd, fresh)
	}
	return s
}

func random(rnd *rand.Rand, n int) stream {
	b := make([]byte, 0, n*keySize)
	for range n * keySize / 8 {
		b = binary.LittleEndian.AppendUint64(b, rnd.Uint64())
	}
	return frozen(b)
}

func (s *streams) draw(n int, next func() int) stream {
	b := make([]byte, 0, n*keySize)
	for range n {
		b = append(b, s.known.key(next())...)
	}
	return frozen(b)
}

// frozen makes a stream of b without a copy; b is not written again.
func frozen(b []byte) stream { return stream(unsafe.String(unsafe.SliceData(b), len(b))) }
