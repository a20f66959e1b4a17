package spillgate

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"
)

// resealed returns b with every checksum as it has to be, as far as b looks
// like a snapshot.
func resealed(b []byte) []byte {
	b = bytes.Clone(b)
	pos := len(snapshotName) + 4
	for pos+4 <= len(b) {
		binary.LittleEndian.PutUint32(b[pos:], crc32.Checksum(b[:pos], castagnoli))
		if pos += 4; pos+frameHead > len(b) {
			break
		}
		n := binary.LittleEndian.Uint32(b[pos+1:])
		if uint64(n) > uint64(len(b)) {
			break
		}
		pos += frameHead + int(n)
	}
	return b
}

// FuzzRestore restores anything, also what has the right checksums, and uses
// what it got: it is refused or it works.
func FuzzRestore(f *testing.F) {
	whole := snapshotOf(f, manyKinds(f))
	f.Add(whole)
	f.Add(snapshotOf(f, Must("10/s")))
	f.Add(whole[:len(whole)/2])
	f.Add([]byte(snapshotName))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, resealed(b)} {
			mem := NewMemory()
			if mem.Restore(bytes.NewReader(b)) != nil {
				continue
			}
			again := snapshotOf(t, mem)
			if err := NewMemory().Restore(bytes.NewReader(again)); err != nil {
				t.Fatalf("its own snapshot: %v", err)
			}
			for name, img := range mem.restored {
				useRestored(t, mem, name, img)
			}
			if err := NewMemory().Restore(bytes.NewReader(snapshotOf(t, mem))); err != nil {
				t.Fatalf("its own snapshot, once used: %v", err)
			}
			mem.Close()
		}
	})
}

// useRestored charges and settles what was restored of a space.
func useRestored(t *testing.T, mem *Memory, name string, img *image) {
	sp, err := NewSpace(name, SpaceOptions{MaxKeys: 3, TTL: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	if err := mem.Resume(sp, mustMeter(t, "3/s burst 5")); err != nil {
		t.Fatal(err)
	}
	meters := append([]*Meter{mustMeter(t, "3/s burst 5"), mustMeter(t, "2/min log"), mustMeter(t, "2 at once")}, img.meters[1:]...)
	var tags []uint64
	for i := range sp.bound.Load().table.Len() {
		entries, _ := sp.bound.Load().table.At(i).AppendTo(nil, nil)
		for _, e := range entries {
			tags = append(tags, e.Tag)
		}
	}
	for i, m := range meters[:min(len(meters), 20)] {
		for _, tag := range slices.Concat(tags[:min(len(tags), 20)], []uint64{5, 6, 7}) {
			at := max(img.latest, firstInstant) + Instant(i)
			d := takeAll(t, mem, at, Charge{Space: sp, Key: Key{tag, 1}, Meter: m, Ask: Ask{N: 1}})[0]
			settleOne(t, mem, at, Correction{Space: sp, Key: Key{tag, 1}, Meter: m, Delta: int64(i%3) - 1, At: d.At, Slot: d.Slot, Overflow: d.Overflow})
		}
	}
}
