package usage

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkScanner reads the 10,000 events of a chat, one at a time as a proxy
// passes them on, and in pieces as large as its buffer.
func BenchmarkScanner(b *testing.B) {
	var body strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&body, "data: {\"id\":\"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT\",\"object\":\"chat.completion.chunk\",\"created\":1741569952,\"model\":\"gpt-4.1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word %05d\"},\"finish_reason\":null}],\"usage\":null}\n\n", i)
	}
	event := body.Len() / 10_000
	for _, size := range []int{event, event * 2 / 3, 32 << 10} {
		b.Run(fmt.Sprintf("pieces of %d", size), func(b *testing.B) {
			text := []byte(body.String())
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				var s Scanner
				s.Begin(OpenAI, "text/event-stream", "", nil)
				inPieces(&s, text, size)
				s.End()
			}
		})
	}
}
