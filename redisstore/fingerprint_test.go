package redisstore_test

import (
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/redisstore/redistest"
)

// Nodes that share a store show a caller's secret by the same fingerprint, and
// tell it the same partition key, without being given a key for that.
func TestNodesShowSecretsAlike(t *testing.T) {
	server := redistest.Start(t)
	p, err := policy.Compile([]policy.Rule{
		{Name: "token", Key: []policy.Part{{Attributes: []policy.Attribute{{Kind: policy.Header, Name: "authorization"}}}}, Limit: spillgate.Must("10/h burst 10").Limit()},
		{Name: "address", Key: []policy.Part{{Attributes: []policy.Attribute{{Kind: policy.ClientIP}}}}, Limit: spillgate.Must("1000/s").Limit()},
	})
	if err != nil {
		t.Fatal(err)
	}
	type shown struct {
		print     string
		partition [8]byte
	}
	node := func(server *redistest.Server) shown {
		s := open(t, server.Client())
		seed, err := s.Seed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e := policy.NewEngine(p, s, policy.Seeded(seed))
		v := e.Decide(t.Context(), policy.Attrs{"header.authorization": "Bearer x", "client.ip": "203.0.113.7"})
		if err := v.Err(); err != nil {
			t.Fatal(err)
		}
		return shown{e.Fingerprint(p.Rules()[0].Key[0].Attributes[0], "Bearer x"), v.Partition(v.Of("token"))}
	}
	one, two, elsewhere := node(server), node(server), node(redistest.Start(t))
	if one != two {
		t.Errorf("%x and %x on one store", one, two)
	}
	if one.print == elsewhere.print || one.partition == elsewhere.partition {
		t.Errorf("%x and %x on two stores", one, elsewhere)
	}
}
