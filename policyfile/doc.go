// Package policyfile reads a policy from a YAML file, and says what is wrong
// with one at its line and column.
//
//	pol, err := policyfile.Load("limits.yaml")
//
// Every key that a file may hold stands in one table, which the reader and the
// JSON Schema (see [Schema]) are both made of. What the table does not know is
// an error: a misspelt key is never a limit that silently does not apply. All
// errors of a file are reported at once, as [Errors], but for those that hang on
// a part that is wrong itself: they come when that is mended.
//
// Of YAML 1.2 the files use mappings, lists and scalars, one document a file,
// in UTF-8. Anchors and aliases work. Merge keys (<<), tags and keys that are
// not plain words are refused: a rule says what it means where it stands.
//
// A file is at most [MaxSize] bytes. What is nested, repeated by aliases or
// cut into small pieces beyond any policy's need is refused before it costs
// much time or memory.
package policyfile

const (
	// MaxSize is how many bytes a policy file holds at most: 10 MiB.
	MaxSize = 10 << 20

	// maxPieces bounds lines and list entries together. A parsed value takes
	// a hundred times its text and some microseconds; 10 MiB of "a," would
	// take gigabytes.
	maxPieces = 300_000
	// maxDepth bounds nesting; the format itself needs 5 levels.
	maxDepth = 20
	// maxReads bounds the steps of reading, those behind an alias once for
	// each time it is used. It is out of reach without aliases.
	maxReads = 1_000_000
	// maxErrors is how many errors of a file are reported.
	maxErrors = 100
)
