package spillgate

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"
)

// A snapshot of 1M keys to a file, beside writing the same bytes, in one run:
// the first reports how many times as long it takes. fsync is not counted.
func BenchmarkSnapshot(b *testing.B) {
	const keys = 1 << 20
	lim := Must("1/h")
	defer lim.Close()
	for k := range keys {
		lim.Allow(fmt.Sprint(k))
	}
	whole := snapshotOf(b, lim)
	f, err := os.CreateTemp(b.TempDir(), "state")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	write := func(what func() error) time.Duration {
		start := time.Now()
		if err := f.Truncate(0); err != nil {
			b.Fatal(err)
		}
		if _, err := f.Seek(0, 0); err != nil {
			b.Fatal(err)
		}
		if err := what(); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	var both [2]time.Duration
	b.SetBytes(int64(len(whole)))
	for b.Loop() {
		both[0] += write(func() error { return lim.Snapshot(f) })
		both[1] += write(func() error { _, err := f.Write(whole); return err })
	}
	b.ReportMetric(float64(both[0].Nanoseconds())/float64(b.N)/1e6, "ms/snapshot")
	b.ReportMetric(float64(both[1].Nanoseconds())/float64(b.N)/1e6, "ms/write")
	b.ReportMetric(float64(both[0])/float64(both[1]), "x")
}

func BenchmarkRestore(b *testing.B) {
	const keys = 1 << 20
	lim := Must("1/h")
	defer lim.Close()
	for k := range keys {
		lim.Allow(fmt.Sprint(k))
	}
	whole := snapshotOf(b, lim)
	b.SetBytes(int64(len(whole)))
	for b.Loop() {
		back := Must("1/h")
		if err := back.Restore(bytes.NewReader(whole)); err != nil {
			b.Fatal(err)
		}
		back.Close()
	}
}
