package usage

import (
	"mime"
	"strings"
)

// A Scanner reads an answer as it passes by. The zero value reads nothing;
// [Scanner.Begin] makes it ready.
type Scanner struct {
	events
	mode   mode
	coded  *inflater // if the answer is compressed
	opaque bool      // nothing can be read of the answer
}

type mode uint8

const (
	nothing mode = iota
	document
	stream
)

// Begin makes s ready for an answer of that type and encoding, as its header
// names them, which more unpacks beside what the standard library can. What is
// neither JSON nor a stream of events, and what nobody can unpack, tells nothing.
func (s *Scanner) Begin(f *Format, contentType, encoding string, more Decoders) {
	s.End()
	*s = Scanner{events: events{walker: walker{format: f}}, mode: modeOf(contentType)}
	if name := strings.ToLower(strings.TrimSpace(encoding)); s.mode != nothing && name != "" && name != "identity" {
		if open := more.of(name); open != nil {
			s.coded = inflate(open, s.scan, maxInflated)
		} else {
			s.mode = nothing
		}
	}
	s.opaque = s.mode == nothing
}

func modeOf(contentType string) mode {
	kind, _, err := mime.ParseMediaType(contentType)
	switch {
	case contentType == "":
		return document // if it is no JSON, it tells nothing
	case err != nil && kind == "":
		return nothing
	case kind == "text/event-stream":
		return stream
	case strings.HasSuffix(kind, "json"), strings.HasSuffix(kind, "json-seq"), strings.HasSuffix(kind, "jsonl"):
		return document // application/json, application/x-ndjson, application/problem+json
	}
	return nothing
}

// Write reads on in the answer. It neither keeps nor changes p.
func (s *Scanner) Write(p []byte) {
	switch {
	case s.mode == nothing || len(p) == 0:
	case s.coded != nil:
		s.coded.write(p)
	default:
		s.scan(p)
	}
}

func (s *Scanner) scan(p []byte) {
	if s.mode == stream {
		s.events.read(p)
	} else {
		s.walk(p)
	}
}

// Counts are what an answer tells.
type Counts struct {
	// Input, Cached, Written, Output and Reasoning are tokens; Cached and
	// Written are parts of Input, Reasoning is one of Output.
	Input, Cached, Written, Output, Reasoning int64
	// InputTold and OutputTold report that the answer said how many.
	InputTold, OutputTold bool
	// Final reports that Output is all there is, Kept that it is if the answer
	// did not break off.
	Final, Kept bool
	// Absurd reports that something stood in the place of a number that is no
	// count: it is negative, broken, above a thousand million, or text.
	Absurd bool
	// Opaque reports that the answer could not be read.
	Opaque bool
}

// End ends the reading, and returns what was told. It frees what s holds, and
// must be called once for each [Scanner.Begin].
func (s *Scanner) End() (c Counts) {
	if s.format == nil {
		return c
	}
	c.Opaque = s.opaque
	if s.coded != nil {
		c.Opaque = !s.coded.end() || c.Opaque
		s.coded = nil
	}
	var in, out uint32
	c.Input, in = s.sum(Input)
	c.Cached, _ = s.sum(Cached)
	c.Written, _ = s.sum(Written)
	c.Output, out = s.sum(Output)
	c.Reasoning, _ = s.sum(Reasoning)
	c.InputTold, c.OutputTold = s.told&in != 0, s.told&out != 0
	if s.mode == stream {
		c.Kept = s.kept&out != 0
		c.Final = s.final&out != 0 || c.Kept && s.done
	} else { // embeddings have no output, and say nothing of it
		c.Final = s.whole() && (c.InputTold || c.OutputTold)
	}
	c.Absurd = s.absurd
	return c
}
