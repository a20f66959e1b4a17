package redisstore

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"slices"
	"strings"
)

// The pieces of the scripts; head.lua says what goes in and comes out.
var (
	//go:embed script/one.lua
	oneLua string
	//go:embed script/many.lua
	manyLua string
	//go:embed script/head.lua
	headLua string
	//go:embed script/bucket.lua
	bucketLua string
	//go:embed script/windows.lua
	windowsLua string
	//go:embed script/settle.lua
	settleLua string
	//go:embed script/ask.lua
	askLua string
	//go:embed script/kept.lua
	keptLua string
	//go:embed script/main.lua
	mainLua string
	//go:embed script/probe.lua
	probeLua string
)

// A script is one that the server knows by its digest.
type script struct{ source, sha string }

// There are four that do the same, since a server makes the functions of a script
// anew each time it is run, and tables cost it most: for one charge, for what most
// requests are, for buckets, and for all.
var (
	whole   = scriptOf(headLua, bucketLua, windowsLua, settleLua, askLua, keptLua, mainLua)
	single  = scriptOf(oneLua)
	many    = scriptOf(manyLua)
	buckets = scriptOf(headLua, bucketLua, askLua, mainLua)
	probing = scriptOf(probeLua) // does all that those do
)

func scriptOf(pieces ...string) script {
	source := strings.Join(pieces, "")
	sum := sha1.Sum([]byte(source)) // what EVALSHA goes by
	return script{source, hex.EncodeToString(sum[:])}
}

// call returns the run of the script that g needs.
func (g *group) call(given bool, floor int64, s *Store) Call {
	by, encode := whole, g.encode
	switch {
	case !slices.ContainsFunc(g.ops, func(o *op) bool { return !o.simple() }):
		by, encode = many, g.encodeMany
		if len(g.ops) == 1 && len(g.ops[0].parts) == 1 {
			by, encode = single, g.encodeOne
		}
	case !slices.ContainsFunc(g.ops, func(o *op) bool { return !o.buckets() }):
		by = buckets
	}
	args := encode(given, floor, s)
	return Call{SHA: by.sha, Source: by.source, Keys: g.keys, Args: args}
}

// buckets reports whether o takes, and from buckets alone.
func (o *op) buckets() bool {
	for i := range o.parts {
		if k := o.parts[i].kind; k != kindBucket && k != kindNone {
			return false
		}
	}
	return o.fix == nil
}

// simple reports whether o is charges of buckets, each of a key of its own, and
// nothing beside that.
func (o *op) simple() bool {
	if o.fix != nil || o.dry || o.replace != nil {
		return false
	}
	for i := range o.parts {
		p := &o.parts[i]
		if p.kind != kindBucket || p.root != i || p.q.N == 0 || p.q.Min > 0 || p.q.Need > p.q.N || p.ttl > 0 || p.strict || p.trial {
			return false
		}
	}
	return true
}
