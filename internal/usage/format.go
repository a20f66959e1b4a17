package usage

import (
	"fmt"
	"math/bits"
	"strings"
)

// The quantities that a body can tell of. Cached and Written are parts of
// Input, and Reasoning is a part of Output.
const (
	Input     = iota // tokens of the request
	Cached           // of them, read from the provider's cache
	Written          // of them, written to it
	Output           // tokens of the answer
	Reasoning        // of them, not shown
	Most             // of a request: how many tokens the answer may have
	Choices          // of a request: how many answers there may be
	quantities
)

// Quantities are their names in a policy. A format of one's own has no word
// for the number of choices.
var Quantities = [...]string{Input: "input", Cached: "cached", Written: "written", Output: "output", Reasoning: "reasoning", Most: "most"}

const (
	maxPaths    = 32
	maxSegments = 8
	maxSegment  = 64
)

// A Format says where in a body numbers stand. Make one with [NewFormat].
type Format struct {
	paths   []path
	depth   int
	all     uint32   // a bit a path
	needles [][]byte // without one of them an event tells nothing
	has     uint8    // a bit a quantity
}

// A path leads to a number through objects. The parts of a sum have different
// slots; what stands in one slot is one number told in several places.
type path struct {
	segments []string
	slot     uint8
	adds     uint8 // a bit for each quantity that the slot is added to
	holds    holds
}

// holds says when a number that a stream told is known to grow no more. In a
// JSON text it is when the text ends.
type holds uint8

const (
	atEnd  holds = iota // of the stream
	atOnce              // it is told once
	never               // it is told again, elsewhere
)

// The formats by name.
var (
	// OpenAI is that of chat completions, completions, embeddings and
	// responses, and of the many that speak like them.
	OpenAI = known(func(b *builder) {
		for _, at := range [...]string{"usage.", "response.usage."} {
			b.add(at+"prompt_tokens", 0, Input)
			b.add(at+"input_tokens", 0, Input)
			b.add(at+"prompt_tokens_details.cached_tokens", 1, Cached)
			b.add(at+"input_tokens_details.cached_tokens", 1, Cached)
			b.add(at+"completion_tokens", 2, Output)
			b.add(at+"output_tokens", 2, Output)
			b.add(at+"completion_tokens_details.reasoning_tokens", 3, Reasoning)
			b.add(at+"output_tokens_details.reasoning_tokens", 3, Reasoning)
		}
		// Some tell the usage so far with each piece of a chat; responses tell
		// it when they are complete.
		for i := range b.paths {
			if b.paths[i].segments[0] == "response" {
				b.paths[i].holds = atOnce
			}
		}
	})
	// Anthropic is that of messages. What was read from the cache and written
	// to it is told beside the rest of the input. A stream tells the input
	// when it begins, with an output that is only begun.
	Anthropic = known(func(b *builder) {
		for _, at := range [...]string{"usage.", "message.usage."} {
			b.add(at+"input_tokens", 0, Input)
			b.add(at+"cache_read_input_tokens", 1, Input, Cached)
			b.add(at+"cache_creation_input_tokens", 2, Input, Written)
			b.add(at+"output_tokens", 3, Output)
			b.paths[len(b.paths)-1].holds = atOnce
			if at != "usage." {
				b.paths[len(b.paths)-1].holds = never
			}
		}
	})
	// request is that of the bodies that clients send, for all formats by name.
	request = known(func(b *builder) {
		b.add("max_tokens", 0, Most)
		b.add("max_completion_tokens", 0, Most)
		b.add("max_output_tokens", 0, Most)
		b.add("n", 1, Choices)
	})
)

// Named returns the format of that name and that of its requests.
func Named(name string) (answer, req *Format, ok bool) {
	switch name {
	case "openai":
		return OpenAI, request, true
	case "anthropic":
		return Anthropic, request, true
	}
	return nil, nil, false
}

// Names are the formats that have one.
var Names = []string{"openai", "anthropic"}

type builder struct {
	Format
	err error
}

// known makes a format of this file, which is one.
func known(fill func(*builder)) *Format {
	var b builder
	fill(&b)
	f, _ := b.finish()
	return f
}

func (b *builder) add(text string, slot int, adds ...int) {
	p := path{segments: strings.Split(text, "."), slot: uint8(slot)}
	for _, q := range adds {
		p.adds |= 1 << q
		b.has |= 1 << q
	}
	for _, s := range p.segments {
		if s == "" || len(s) > maxSegment || strings.ContainsAny(s, "\"\\ \t\r\n") || len(p.segments) > maxSegments {
			b.err = fmt.Errorf("path %q: want names with dots between, such as usage.output_tokens: at most %d, without blanks, quotes and backslashes", text, maxSegments)
			return
		}
	}
	b.depth = max(b.depth, len(p.segments))
	b.paths = append(b.paths, p)
}

func (b *builder) finish() (*Format, error) {
	if b.err == nil && len(b.paths) > maxPaths {
		b.err = fmt.Errorf("%d paths; at most %d", len(b.paths), maxPaths)
	}
	if b.err != nil {
		return nil, b.err
	}
	f := b.Format
	f.all = 1<<len(f.paths) - 1
	f.needles = needles(f.paths)
	return &f, nil
}

// NewFormat makes a format of paths, by quantity: several paths of one are
// added up. It returns the format of answers, and that of requests, which is
// nil if no path says how many tokens an answer may have. A path that adds to
// two quantities (the cached part of the input) may stand under both.
func NewFormat(paths [][]string) (answer, req *Format, err error) {
	var a, r builder
	slots := map[string]int{}
	for q, list := range paths {
		for _, text := range list {
			if q == Most {
				r.add(text, 0, Most) // one limit by several names
				continue
			}
			slot, seen := slots[text]
			if !seen {
				slot = len(slots)
				slots[text] = slot
				a.add(text, slot, q)
				continue
			}
			for i := range a.paths {
				if a.paths[i].slot == uint8(slot) {
					a.paths[i].adds |= 1 << q
					a.has |= 1 << q
				}
			}
		}
	}
	if answer, err = a.finish(); err != nil {
		return nil, nil, err
	}
	if answer.has&(1<<Input|1<<Output) == 0 {
		return nil, nil, fmt.Errorf("neither input nor output: say where at least one of them stands")
	}
	if len(r.paths) > 0 || r.err != nil {
		req, err = r.finish()
	}
	return answer, req, err
}

// tells reports whether the format has a path for the quantity.
func (f *Format) tells(quantity int) bool { return f.has&(1<<quantity) != 0 }

// needles returns byte strings, in quotes as far as keys are, such that a
// document without any of them has none of the paths: the common end of all
// last names if it is long enough, else each last name.
func needles(paths []path) [][]byte {
	if len(paths) == 0 {
		return nil
	}
	last := func(p *path) string { return p.segments[len(p.segments)-1] + `"` }
	common := last(&paths[0])
	for i := range paths {
		s := last(&paths[i])
		n := 0
		for n < min(len(s), len(common)) && s[len(s)-1-n] == common[len(common)-1-n] {
			n++
		}
		common = common[len(common)-n:]
	}
	const enough = 5
	if len(common) >= enough {
		return [][]byte{[]byte(common)}
	}
	var out [][]byte
	seen := map[string]bool{}
	for i := range paths {
		if s := `"` + last(&paths[i]); !seen[s] {
			seen[s] = true
			out = append(out, []byte(s))
		}
	}
	return out
}

// match returns those of the paths alive whose segment at level is key.
func (f *Format) match(alive uint32, level int, key []byte) (m uint32) {
	for rest := alive; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros32(rest)
		if s := f.paths[i].segments; len(s) > level && s[level] == string(key) {
			m |= 1 << i
		}
	}
	return m
}
