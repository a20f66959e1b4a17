package grpclimit

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

func (s *server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	carrier, err := s.admit(ss.Context(), info.FullMethod, nil, true, ss.SetHeader)
	if err != nil {
		return err
	}
	st := &stream{ServerStream: ss, server: s, carrier: carrier, method: info.FullMethod, counts: carrier.verdict.Counts(policy.Bytes)}
	returned := false
	defer func() {
		if refusal := st.refused.Load(); refusal != nil && returned {
			err = refusal.Err() // whatever the handler made of it
		}
		if st.counts {
			s.measured(carrier, &st.sent)
		}
		s.ended(carrier, err, returned)
	}()
	err = handler(srv, st)
	returned = true
	return err
}

// A stream is one whose handler finds the verdict in its context, and whose
// messages are charged.
type stream struct {
	grpc.ServerStream
	server  *server
	carrier *running
	method  string
	refused atomic.Pointer[status.Status] // by a message
	counts  bool                          // a rule counts the bytes of answers
	sent    sent
}

// Context returns the context with the verdict.
func (s *stream) Context() context.Context { return s.carrier }

// RecvMsg receives a message and charges it.
func (s *stream) RecvMsg(m any) error {
	if refusal := s.refused.Load(); refusal != nil {
		return refusal.Err()
	}
	if err := s.ServerStream.RecvMsg(m); err != nil || s.server.messages.unit == "" {
		return err
	}
	return s.charge(m)
}

// tooLate reports whether ctx ends before a pause would.
func tooLate(ctx context.Context, pause time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) <= pause
}

// leastPause bounds how often a message that is held asks again, if others
// take what it waits for.
const leastPause = time.Millisecond

// charge charges a message, and holds it if that is allowed.
func (s *stream) charge(m any) error {
	var (
		ctx = s.ServerStream.Context()
		srv = s.server
		a   attributes
	)
	a.begin(&srv.options, ctx, s.method, m)
	opts := srv.appendCosts([]policy.Option{policy.Only(srv.messages.unit)}, ctx, m)
	trying := opts // a message that is held is refused by nobody
	if srv.messages.most > 0 {
		trying = append(opts[:len(opts):len(opts)], policy.Tentative())
	}
	var v policy.Verdict
	for left := srv.messages.most; ; {
		srv.engine.Await(ctx, &v, &a, trying...)
		srv.journal.Fault("store unavailable", v.Fault)
		v.Done() // no message holds a slot
		pause := v.Delay()
		if !v.Allowed {
			pause = max(v.RetryAfter(), leastPause)
			if v.Refusing() == nil || pause == spillgate.Never || pause > left || tooLate(ctx, pause) {
				if len(trying) > len(opts) && v.Refusing() != nil {
					trying = opts // now it is the last word
					continue
				}
				return s.refuse(&a, &v, nil)
			}
		}
		if err := srv.engine.Hold(ctx, pause); err != nil {
			srv.journal.Fault("verdict not settled", v.GiveBack())
			return s.refuse(&a, &v, err)
		}
		if v.Allowed {
			return nil
		}
		left -= pause
	}
}

// refuse refuses a message, and with it what is left of the stream.
func (s *stream) refuse(a *attributes, v *policy.Verdict, err error) error {
	refusal := s.server.refuse(a, v, err)
	s.refused.Store(refusal)
	return refusal.Err()
}
