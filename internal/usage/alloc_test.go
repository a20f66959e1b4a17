//go:build !race

package usage

import (
	"strings"
	"testing"
)

// TestAllocScanner reads streams in memory of a fixed size: events that tell
// nothing, events that tell something, and one that is a megabyte long.
func TestAllocScanner(t *testing.T) {
	for name, body := range map[string][]byte{
		"short": []byte(strings.Repeat("data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}],\"usage\":null}\n\n", 100)),
		"told":  []byte(strings.Repeat("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n", 100)),
		"long":  megabyte(),
	} {
		var s Scanner
		s.Begin(OpenAI, "text/event-stream", "", nil)
		if n := testing.AllocsPerRun(3, func() { inPieces(&s, body, 777) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
