package redisstore

import (
	"context"
	"slices"
)

// A Conn is a client library as this package sees it. The one for go-redis is
// made by [New]; others are handed to [Open].
type Conn interface {
	// Lane names the server that holds the slot of a key: calls of one lane
	// go to one server. A single server has one lane, "". ctx bounds it, also
	// where no server of a cluster was reached yet; once one was it returns at
	// once.
	Lane(ctx context.Context, slot uint16, key string) (string, error)
	// Slots reports whether keys of one call have to be in one slot.
	Slots() bool
	// Punctual reports whether Eval returns at the end of its ctx, whatever
	// happens.
	Punctual() bool
	// Eval makes the calls, in one write where the library can, and fills in
	// Reply or Err. It must not make a call a second time if the server may
	// have carried it out. ctx bounds it.
	Eval(ctx context.Context, calls []Call)
}

// A Call is one run of a script.
type Call struct {
	// SHA is the script's digest, for EVALSHA; if it is "", the Source is
	// sent, with EVAL.
	SHA, Source string
	Keys, Args  []string
	Reply       []any // int64, string, nil, []any
	Err         error
}

// eval makes calls that carry no requests, a script that the server does not know anew,
// and returns them with what came of them, at the end of ctx at the latest: where the
// library does not keep to it, they go on beside, and nobody waits for them any more.
func (s *Store) eval(ctx context.Context, calls []Call) []Call {
	if s.punctual {
		s.conn.Eval(ctx, calls)
		again(ctx, s.conn, calls)
		return calls
	}
	own, done := slices.Clone(calls), make(chan struct{})
	select {
	case s.beside <- struct{}{}:
		go func() {
			defer func() { <-s.beside }()
			defer close(done)
			s.conn.Eval(ctx, own)
			again(ctx, s.conn, own)
		}()
	case <-ctx.Done(): // those of before still hang
	}
	select {
	case <-done:
		return own
	case <-ctx.Done():
		for i := range calls {
			calls[i].Err = ctx.Err()
		}
		return calls
	}
}

// Words returns the call as the words of a command.
func (c *Call) Words() []any {
	words := make([]any, 0, 3+len(c.Keys)+len(c.Args))
	if c.SHA != "" {
		words = append(words, "evalsha", c.SHA)
	} else {
		words = append(words, "eval", c.Source)
	}
	words = append(words, len(c.Keys))
	for _, k := range c.Keys {
		words = append(words, k)
	}
	for _, a := range c.Args {
		words = append(words, a)
	}
	return words
}
