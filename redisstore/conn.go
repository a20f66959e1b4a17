package redisstore

import "context"

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
