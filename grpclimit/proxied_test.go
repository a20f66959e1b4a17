package grpclimit_test

import (
	"testing"

	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/grpclimit"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// The word of a proxy is that of a peer that is trusted, and of nobody else.
func TestOnlyTrustedProxiesSetTheirAttributes(t *testing.T) {
	for _, c := range []struct {
		trusted string
		pairs   []string
		want    [2]codes.Code
	}{
		{"loopback", []string{"x-user", "ann"}, [2]codes.Code{codes.OK, codes.ResourceExhausted}},
		{"loopback", nil, [2]codes.Code{codes.PermissionDenied, codes.PermissionDenied}},
		{"loopback", []string{"x-user", "ann", "x-user", "bob"}, [2]codes.Code{codes.InvalidArgument, codes.InvalidArgument}},
		{"10.0.0.0/8", []string{"x-user", "ann"}, [2]codes.Code{codes.PermissionDenied, codes.PermissionDenied}},
		{"10.0.0.0/8", []string{"x-user", "ann", "x-user", "bob"}, [2]codes.Code{codes.PermissionDenied, codes.PermissionDenied}},
		{"", []string{"x-user", "ann"}, [2]codes.Code{codes.PermissionDenied, codes.PermissionDenied}},
	} {
		var opts []grpclimit.Option
		if c.trusted != "" {
			r, err := clientip.New(clientip.Options{Trusted: []string{c.trusted}})
			if err != nil {
				t.Fatal(err)
			}
			opts = append(opts, grpclimit.TrustedProxies(r))
		}
		user := policy.Rule{Name: "user", Key: key(t, "proxy.x-user"), Limit: limit(t, "1/h"), Missing: policy.Refuse}
		client := serveTCP(t, &service{}, limited(engineOf(t, user), opts...))
		for i, want := range c.want {
			if got := call(metadata.AppendToOutgoingContext(t.Context(), c.pairs...), client); got.Code() != want {
				t.Errorf("trusted %q, %q, call %d: %v, want %v", c.trusted, c.pairs, i, got, want)
			}
		}
	}
}
