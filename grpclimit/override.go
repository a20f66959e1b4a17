package grpclimit

import (
	"fmt"
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
	blocked := "this caller is blocked"
	if !o.Ruleless() {
		blocked += fmt.Sprintf(" (rule %q)", o.Rule.Name)
	}
	switch {
	case o.Decision.Reason != spillgate.Blocked:
		return status.Newf(codes.PermissionDenied, "rule %q does not admit this call; waiting does not help", o.Rule.Name)
	case wait == spillgate.Never:
		return status.Newf(codes.PermissionDenied, "%s; waiting does not help", blocked)
	}
	return with(status.Newf(codes.PermissionDenied, "%s; retry after %s", blocked, wait),
		&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
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
