package redisstore

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"
)

// The pieces of the scripts; head.lua says what goes in and comes out.
var (
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
)

// A script is one that the server knows by its digest.
type script struct{ source, sha string }

// There are two of one kind, since a server makes the functions of a script
// anew each time it is run: one for what most limits are, and one for all.
var (
	whole   = scriptOf(headLua, bucketLua, windowsLua, settleLua, askLua, keptLua, mainLua)
	buckets = scriptOf(headLua, bucketLua, askLua, mainLua)
)

func scriptOf(pieces ...string) script {
	source := strings.Join(pieces, "")
	sum := sha1.Sum([]byte(source)) // what EVALSHA goes by
	return script{source, hex.EncodeToString(sum[:])}
}

// script returns which one g needs.
func (g *group) script() script {
	for _, o := range g.ops {
		if o.fix != nil {
			return whole
		}
		for i := range o.parts {
			if k := o.parts[i].kind; k != kindBucket && k != kindNone {
				return whole
			}
		}
	}
	return buckets
}
