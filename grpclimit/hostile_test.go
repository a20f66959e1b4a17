package grpclimit_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/grpclimit"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// Metadata of any size is decided about, whole, and little of it is kept or
// logged: of a key what a list shows. What is larger than the server
// reads never comes to a rule.
func TestOversizedMetadata(t *testing.T) {
	var log bytes.Buffer
	eng := engineOf(t,
		policy.Rule{Name: "id", Key: key(t, "header.x-id"), Limit: limit(t, "1/h burst 1"), Missing: policy.Skip},
		policy.Rule{Name: "all", Key: key(t, "client.ip"), Limit: limit(t, "1/h burst 6")},
	)
	opts := append(limited(eng, grpclimit.Logger(slog.New(slog.NewTextHandler(&log, nil)))), grpc.MaxHeaderListSize(1<<20))
	c := serve(t, &service{}, opts)
	ask := func(pairs ...string) codes.Code {
		return call(metadata.AppendToOutgoingContext(t.Context(), pairs...), c).Code()
	}
	long := strings.Repeat("x", 1<<18)
	var many []string
	for range 10_000 {
		many = append(many, "x-id", "a")
	}
	for i, one := range []struct {
		pairs []string
		want  codes.Code
	}{
		{[]string{"x-id", long + "a"}, codes.OK},
		{[]string{"x-id", long + "a"}, codes.ResourceExhausted},
		{[]string{"x-id", long + "b"}, codes.OK}, // another one, though it begins alike
		{many, codes.OK},
		{many, codes.ResourceExhausted},
		{[]string{"x-other", long}, codes.OK},
	} {
		if got := ask(one.pairs...); got != one.want {
			t.Errorf("call %d: %v, want %v", i, got, one.want)
		}
	}
	if got := ask("x-other", strings.Repeat(long, 5)); got == codes.OK || got == codes.ResourceExhausted {
		t.Errorf("more than is read: %v", got) // gRPC itself refuses that
	}
	v := eng.Decide(t.Context(), policy.Attrs{}, policy.Cost(policy.Requests, 0))
	if left := v.Of("all").Decision.Remaining; left != 2 {
		t.Errorf("%d are left, want 2", left)
	}
	for _, who := range eng.Limited("id", 9) {
		if len(who.Key) > 256 {
			t.Errorf("a key of %d bytes is listed", len(who.Key))
		}
	}
	if log.Len() > 4096 || strings.Contains(log.String(), long[:300]) {
		t.Errorf("%d bytes of log", log.Len())
	}
}
