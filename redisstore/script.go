package redisstore

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"
)

// The pieces of the scripts; head.lua says what goes in and comes out.
var (
	//go:embed script/one.lua
	oneLua string
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

// There are three that do the same, since a server makes the functions of a
// script anew each time it is run: for one charge, for what most limits are, and
// for all.
var (
	whole   = scriptOf(headLua, bucketLua, windowsLua, settleLua, askLua, keptLua, mainLua)
	single  = scriptOf(oneLua)
	buckets = scriptOf(headLua, bucketLua, askLua, mainLua)
)

func scriptOf(pieces ...string) script {
	source := strings.Join(pieces, "")
	sum := sha1.Sum([]byte(source)) // what EVALSHA goes by
	return script{source, hex.EncodeToString(sum[:])}
}

// script returns which one g needs.
func (g *group) script() script {
	if len(g.ops) == 1 && g.ops[0].simple() {
		return single
	}
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

// simple reports whether o is a single charge of a bucket.
func (o *op) simple() bool {
	if len(o.parts) != 1 || o.fix != nil || o.dry || o.replace != nil {
		return false
	}
	p := &o.parts[0]
	return p.kind == kindBucket && p.q.N > 0 && p.q.Min == 0 && p.q.Need <= p.q.N && p.ttl == 0 && !p.strict && !p.trial
}
