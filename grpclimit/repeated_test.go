package grpclimit_test

import (
	"testing"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// A credential that comes twice is no new caller, and blocked if one of both is.
func TestOneCredentialIsOneCaller(t *testing.T) {
	p, err := policy.Compile([]policy.Rule{
		{Name: "own", Key: key(t, "header.x-api-key"), Limit: limit(t, "2/h burst 2")},
		{Name: "all", Key: key(t, "client.ip"), Limit: limit(t, "100/h burst 100")},
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err = p.WithOverrides([]policy.Override{{Deny: true, List: "blocked", Key: key(t, "header.x-api-key")[0], Entries: []policy.Entry{{Value: "bad"}}}})
	if err != nil {
		t.Fatal(err)
	}
	c := serve(t, &service{}, limited(policy.NewEngine(p, spillgate.NewMemory())))
	for i, one := range []struct {
		pairs []string
		want  codes.Code
	}{
		{[]string{"x-api-key", "a", "x-api-key", "1"}, codes.InvalidArgument},
		{[]string{"x-api-key", "2", "x-api-key", "a"}, codes.InvalidArgument},
		{[]string{"x-api-key", "a", "x-api-key", "a"}, codes.OK},
		{[]string{"x-api-key", "a"}, codes.OK},
		{[]string{"x-api-key", "a"}, codes.ResourceExhausted},
		{[]string{"x-api-key", "3", "x-api-key", "bad"}, codes.PermissionDenied},
	} {
		if got := call(metadata.AppendToOutgoingContext(t.Context(), one.pairs...), c); got.Code() != one.want {
			t.Errorf("%d: %v, want %v", i, got, one.want)
		}
	}
}
