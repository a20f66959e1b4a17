package table

import (
	"testing"
	"unsafe"
)

// Shards that share a cache line slow each other down.
func TestShardSize(t *testing.T) {
	if n := unsafe.Sizeof(Shard{}); n%128 != 0 {
		t.Errorf("a shard has %d bytes, want a multiple of 128", n)
	}
}
