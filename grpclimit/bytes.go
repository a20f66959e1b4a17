package grpclimit

import (
	"sync/atomic"

	"github.com/spillgate/spillgate/policy"
	"google.golang.org/protobuf/proto"
)

// sent is how large the messages of an answer are.
type sent struct {
	bytes   atomic.Int64
	unknown atomic.Bool // one of them can't be told
}

func (s *sent) add(msg any) {
	n, ok := size(msg)
	if !ok {
		s.unknown.Store(true)
		return
	}
	s.bytes.Add(n)
}

// size returns how many bytes a message has, before it is compressed. Of a codec
// that knows no proto.Message, it can't be told.
func size(msg any) (n int64, ok bool) {
	m, ok := msg.(proto.Message)
	if !ok {
		return 0, false
	}
	return int64(proto.Size(m)), true
}

// measured settles what the rules that count bytes charged a call whose answer
// is s. What can't be told stays as it was estimated.
func (s *server) measured(c *running, answer *sent) {
	if !answer.unknown.Load() {
		s.journal.Fault("verdict not settled", c.verdict.Measured(policy.Bytes, answer.bytes.Load()))
	}
}

// SendMsg sends a message, and counts it if that is asked for.
func (s *stream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if err == nil && s.counts {
		s.sent.add(m)
	}
	return err
}
