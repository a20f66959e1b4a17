package grpclimit

import (
	"context"
	"sync"

	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Server returns the interceptors that limit the calls of a server by the
// rules of eng's policy. Give them before those that do the work, and after
// those that tell who is calling.
func Server(eng *policy.Engine, opts ...Option) []grpc.ServerOption {
	s := newServer(eng, opts)
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(s.unary), grpc.ChainStreamInterceptor(s.stream)}
}

// UnaryServer returns the interceptor of calls with one request and one answer,
// for those who chain by themselves.
func UnaryServer(eng *policy.Engine, opts ...Option) grpc.UnaryServerInterceptor {
	return newServer(eng, opts).unary
}

// StreamServer returns the interceptor of streams, for those who chain by
// themselves.
func StreamServer(eng *policy.Engine, opts ...Option) grpc.StreamServerInterceptor {
	return newServer(eng, opts).stream
}

type server struct {
	options
	engine  *policy.Engine
	items   map[*policy.Rule]string
	journal *policy.Journal
}

func newServer(eng *policy.Engine, opts []Option) *server {
	s := &server{engine: eng, items: policyItems(eng.Policy().Rules())}
	s.paths = eng.Policy().Paths()
	for _, opt := range opts {
		opt(&s.options)
	}
	s.journal = eng.Journal(s.log)
	return s
}

// A call is the memory of one decision, reused.
type call struct {
	attributes
	verdict policy.Verdict
	opts    []policy.Option
}

var calls = sync.Pool{New: func() any { return new(call) }}

func (c *call) free() {
	c.options, c.ctx, c.method, c.msg = nil, nil, "", nil
	calls.Put(c)
}

func (s *server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	carrier, err := s.admit(ctx, info.FullMethod, req, false, func(md metadata.MD) error { return grpc.SetHeader(ctx, md) })
	if err != nil {
		return nil, err
	}
	returned := false
	defer func() {
		if carrier.verdict.Counts(policy.Bytes) {
			var answer sent
			if returned && err == nil {
				answer.add(resp)
			}
			s.measured(carrier, &answer)
		}
		s.ended(carrier, err, returned)
	}()
	resp, err = handler(carrier, req)
	returned = true
	return resp, err
}

// running is an admitted call: the context in which its handler runs, and the
// verdict that this carries, in one object. The verdict is never taken back.
type running struct {
	policy.Loan
	verdict policy.Verdict
}

// admit decides about a call. It returns the context in which its handler
// runs, with the verdict; or the error of a refusal.
func (s *server) admit(ctx context.Context, method string, msg any, opens bool, announce func(metadata.MD) error) (*running, error) {
	c := calls.Get().(*call)
	defer c.free()
	c.begin(&s.options, ctx, method, msg)
	c.opts = c.opts[:0]
	if opens && s.messages.unit != "" {
		c.opts = append(c.opts, policy.Cost(s.messages.unit, 0)) // its messages pay
	}
	c.opts = s.appendCosts(c.opts, ctx, msg)
	v := &c.verdict
	s.engine.Await(ctx, v, &c.attributes, c.opts...)
	s.journal.Fault("store unavailable", v.Fault)
	if v.Allowed {
		if err := s.engine.Hold(ctx, v.Delay()); err != nil {
			s.journal.Fault("verdict not settled", v.GiveBack())
			v.Done()
			return nil, s.refuse(&c.attributes, v, err).Err()
		}
	}
	if s.headers == Always || s.headers == Refusals && !v.Allowed {
		if md := s.fields(v); md != nil {
			_ = announce(md) // fails if the stream is over, which the client knows
		}
	}
	if !v.Allowed {
		return nil, s.refuse(&c.attributes, v, nil).Err()
	}
	r := &running{verdict: *v}
	r.Lend(ctx, &r.verdict)
	return r, nil
}

func (s *server) appendCosts(opts []policy.Option, ctx context.Context, msg any) []policy.Option {
	for i := range s.costs {
		c := &s.costs[i]
		if msg == nil && c.unit == s.messages.unit {
			continue
		}
		opts = append(opts, policy.Cost(c.unit, c.of(ctx, msg)))
	}
	return opts
}

// ended settles a call that ended with err, or with a panic if its handler
// never returned.
func (s *server) ended(c *running, err error, returned bool) {
	how := "error"
	if returned {
		how = outcome(err)
		if err != nil && c.Context.Err() != nil {
			how = policy.Aborted // the client left before there was an answer
		}
	}
	s.journal.Fault("verdict not settled", c.verdict.Ended(how))
	c.verdict.Done()
}
