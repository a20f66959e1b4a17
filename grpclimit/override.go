package grpclimit

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
)

// flat returns the status of a call that a rule refuses by itself, or an override.
func flat(o *policy.Outcome, wait time.Duration) *status.Status {
	s := status.New(codes.PermissionDenied, o.Says(wait))
	if o.Decision.Reason != spillgate.Blocked || wait == spillgate.Never {
		return s
	}
	return with(s, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
}

// item returns what RateLimit-Policy says of the limit that o was decided by.
func (s *server) item(o *policy.Outcome) string {
	item := s.items[o.Rule]
	if item == "" || o.Override == nil {
		return item
	}
	r := *o.Rule
	r.Limit = o.Limit()
	for _, item := range policyItems([]policy.Rule{r}) {
		return item
	}
	return ""
}
