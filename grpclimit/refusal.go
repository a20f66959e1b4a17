package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// faultWait is the wait that a client is told while nothing can be decided.
const faultWait = time.Second

// refuse returns the status of a call that may not pass: v refuses it, or could
// not be reached, or the call was not held to its end for err. It has an id that
// the log line has too.
func (s *server) refuse(a *attributes, v *policy.Verdict, err error) *status.Status {
	var (
		id   = fmt.Sprintf("%016x", rand.Uint64())
		o    = v.Refusing()
		wait time.Duration
		told *status.Status
	)
	switch {
	case o != nil:
		wait = v.RetryAfter()
		told = s.refused(a, v, o, wait)
	case err == nil:
		err = v.Err()
		fallthrough
	default:
		told = undecided(a, err)
	}
	s.logRefusal(a, o, err, wait, told.Code(), id)
	return with(told, &errdetails.RequestInfo{RequestId: id})
}

// refused returns the status of a call that o is the first to refuse.
func (s *server) refused(a *attributes, v *policy.Verdict, o *policy.Outcome, wait time.Duration) *status.Status {
	if o.Flat() {
		return flat(o, wait)
	}
	failure := &errdetails.QuotaFailure{}
	for i := range v.Len() {
		if o := v.Outcome(i); o.Refuses() {
			failure.Violations = append(failure.Violations, s.violation(a, o))
		}
	}
	details := []protoadapt.MessageV1{failure}
	if wait != spillgate.Never {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	return with(status.New(codes.ResourceExhausted, o.Says(wait)), details...)
}

// violation tells of one rule that refuses.
func (s *server) violation(a *attributes, o *policy.Outcome) *errdetails.QuotaFailure_Violation {
	r, service := o.Rule, strings.TrimPrefix(a.method, "/")
	if i := strings.LastIndexByte(service, '/'); i >= 0 {
		service = service[:i]
	}
	violation := &errdetails.QuotaFailure_Violation{
		Subject:         r.Subject(),
		Description:     o.Describe(),
		ApiService:      service,
		QuotaMetric:     unit(r),
		QuotaId:         r.Name,
		QuotaDimensions: map[string]string{"method": a.method},
		QuotaValue:      o.Decision.Limit,
	}
	if r.Hide {
		violation.QuotaValue = 0
	}
	if s.future != nil {
		if n, ok := s.future(r); ok {
			violation.FutureQuotaValue = &n
		}
	}
	return violation
}

func unit(r *policy.Rule) string {
	if r.Unit == "" {
		return policy.Requests
	}
	return r.Unit
}

// undecided says what a client is told when err kept the verdict from being
// reached: a fault of ours never looks like a denial.
func undecided(a *attributes, err error) *status.Status {
	var repeated *policy.RepeatedError
	var odd *policy.OddError
	switch {
	case a.ctx.Err() != nil:
		return status.FromContextError(a.ctx.Err())
	case errors.As(err, &repeated):
		return status.Newf(codes.InvalidArgument, "the metadata %s comes several times, with different values, and by it calls are told apart; send it once", repeated.Attribute.Name)
	case errors.As(err, &odd):
		return status.Newf(codes.InvalidArgument, "%s of this call may be taken in too many ways; send it in a plain form, once", odd.Attribute)
	case errors.Is(err, spillgate.ErrCost):
		return status.New(codes.InvalidArgument, "the cost of this call can't be told from it, or is negative")
	case errors.Is(err, spillgate.ErrUnavailable), errors.Is(err, spillgate.ErrClosed):
		return with(status.New(codes.Unavailable, "it can't be decided right now whether this call may pass; this says nothing about your quota"),
			&errdetails.RetryInfo{RetryDelay: durationpb.New(faultWait)})
	case errors.Is(err, context.DeadlineExceeded): // the hold would outlast the call
		return status.FromContextError(err)
	}
	return status.New(codes.Internal, "it could not be decided whether this call may pass; this says nothing about your quota")
}

// with adds details; they are ours and can be marshalled.
func with(s *status.Status, details ...protoadapt.MessageV1) *status.Status {
	if whole, err := s.WithDetails(details...); err == nil {
		return whole
	}
	return s
}

// outcome names how a call ended, as grpc tells its client.
func outcome(err error) string {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	return policy.CodeName(uint32(s.Code()))
}
