package grpclimit

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/client"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A ClientOption shapes the interceptors of [Client].
type ClientOption func(*caller)

// Obey sends a call again that was refused with RESOURCE_EXHAUSTED or UNAVAILABLE
// and was told when to come again, after that wait, within the bounds of p:
//
//   - by a RetryInfo, or else by retry-after in the metadata of the header or the
//     trailer, which [client.Read] reads as it does a field of HTTP;
//   - or, if RESOURCE_EXHAUSTED, by what it reads of a quota that is used up
//     (ratelimit) in the trailer. In the header it may stand in any answer, also
//     in one that the client itself finds too large after the work is done.
//
// Who says so says that the call shall come again; limiters do it in place of the
// work. No other error is followed by another try.
//
// Of streams only those are sent again that have one request, and of which
// nothing was received.
func Obey(p client.Patience) ClientOption {
	return func(c *caller) { c.patience = &p }
}

// OnWait is told of every wait of [Obey] before it begins: how often the call
// was sent already, and how long the wait is.
func OnWait(tell func(ctx context.Context, method string, tried int, wait time.Duration)) ClientOption {
	return func(c *caller) { c.onWait = tell }
}

// Pace keeps the program's own calls below a limit: one that comes too early
// waits for its turn, or fails at once with RESOURCE_EXHAUSTED if that is after
// its deadline; then it was not sent. key says which calls are counted
// together; nil counts those of each connection's target. A slot of a
// Concurrency limit is held until the call, or the stream, is over.
func Pace(lim *spillgate.Limiter, key func(ctx context.Context, method string) string) ClientOption {
	return func(c *caller) { c.limiter, c.key = lim, key }
}

// Client returns the interceptors of a connection. Every try of [Obey] is
// paced.
func Client(opts ...ClientOption) []grpc.DialOption {
	c := &caller{}
	for _, opt := range opts {
		opt(c)
	}
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(c.unary), grpc.WithChainStreamInterceptor(c.stream)}
}

type caller struct {
	patience *client.Patience
	onWait   func(context.Context, string, int, time.Duration)
	limiter  *spillgate.Limiter
	key      func(context.Context, string) string
}

func (c *caller) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	given := len(opts)
	for tried := 1; ; tried++ {
		free, err := c.turn(ctx, method, cc)
		if err != nil {
			return err
		}
		var header, trailer metadata.MD
		if c.patience != nil {
			opts = append(opts[:given:given], grpc.Header(&header), grpc.Trailer(&trailer))
		}
		err = invoke(ctx, method, req, reply, cc, opts...)
		free()
		if again, failed := c.again(ctx, method, tried, err, header, trailer); !again {
			return failed
		}
	}
}

// turn waits until a call may be sent. free is to be called when it is over.
func (c *caller) turn(ctx context.Context, method string, cc *grpc.ClientConn) (free func(), err error) {
	if c.limiter == nil {
		return func() {}, nil
	}
	var key string
	if c.key != nil {
		key = c.key(ctx, method)
	} else {
		key = cc.Target()
	}
	d, err := c.limiter.Wait(ctx, key, 1)
	switch {
	case err == nil && d.Slot == 0:
		return func() {}, nil
	case err == nil:
		return sync.OnceFunc(func() { c.limiter.GiveBack(key, d) }), nil
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return nil, status.Errorf(codes.ResourceExhausted, "not sent: the client's own limit: %v", err)
}

// again waits if a call that ended with err is to be sent again. If not, it
// returns what its caller is to know.
func (c *caller) again(ctx context.Context, method string, tried int, err error, header, trailer metadata.MD) (bool, error) {
	if c.patience == nil || err == nil {
		return false, err
	}
	told, ok := tells(err, header, trailer)
	if !ok {
		return false, err
	}
	wait, ok := c.patience.Next(ctx, tried, told)
	if !ok {
		return false, err
	}
	if c.onWait != nil {
		c.onWait(ctx, method, tried, wait)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-ctx.Done():
		return false, status.FromContextError(ctx.Err()).Err()
	}
}

// tells returns the wait that a refusal tells, if it is one.
func tells(err error, header, trailer metadata.MD) (time.Duration, bool) {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.ResourceExhausted && s.Code() != codes.Unavailable {
		return 0, false
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok && info.GetRetryDelay().CheckValid() == nil {
			if wait := info.GetRetryDelay().AsDuration(); wait >= 0 { // saturates
				return wait, true
			}
		}
	}
	now := time.Now()
	last := client.Read(fieldsOf(trailer), now)
	wait := max(last.RetryAfter, client.Read(fieldsOf(header), now).RetryAfter)
	if wait < 0 && s.Code() == codes.ResourceExhausted {
		wait = last.Wait()
	}
	return wait, wait >= 0
}

// fieldsOf returns metadata as the fields that it is on the wire.
func fieldsOf(md metadata.MD) http.Header {
	h := make(http.Header, len(md))
	for name, values := range md {
		h[http.CanonicalHeaderKey(name)] = values
	}
	return h
}

func (c *caller) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	open := func() (grpc.ClientStream, error) {
		free, err := c.turn(ctx, method, cc)
		if err != nil {
			return nil, err
		}
		s, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil {
			free()
			return nil, err
		}
		context.AfterFunc(s.Context(), free) // it ends with the stream
		return s, nil
	}
	s, err := open()
	if err != nil || c.patience == nil || desc.ClientStreams {
		return s, err
	}
	return &repeated{ClientStream: s, caller: c, open: open, ctx: ctx, method: method}, nil
}

// A repeated stream has one request, and is opened again if it is refused.
type repeated struct {
	caller *caller
	open   func() (grpc.ClientStream, error)
	ctx    context.Context // of the call
	method string

	mu sync.Mutex
	grpc.ClientStream
	request  any
	received bool
}

func (r *repeated) now() grpc.ClientStream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ClientStream
}

// SendMsg sends the request.
func (r *repeated) SendMsg(m any) error {
	r.mu.Lock()
	r.request = m
	s := r.ClientStream
	r.mu.Unlock()
	return s.SendMsg(m)
}

// RecvMsg receives a message; if instead of the first there is a refusal, it
// waits and asks again.
func (r *repeated) RecvMsg(m any) error {
	for tried := 1; ; tried++ {
		r.mu.Lock()
		s, request := r.ClientStream, r.request
		r.mu.Unlock()
		err := s.RecvMsg(m)
		if err == nil || r.received || request == nil {
			r.received = true
			return err
		}
		header, _ := s.Header() // the stream is over
		again, failed := r.caller.again(r.ctx, r.method, tried, err, header, s.Trailer())
		if !again {
			return failed
		}
		if s, err = r.open(); err != nil {
			return err
		}
		r.mu.Lock()
		r.ClientStream = s
		r.mu.Unlock()
		if err := s.SendMsg(request); err != nil {
			return err
		}
		if err := s.CloseSend(); err != nil {
			return err
		}
	}
}

// The rest is the stream's that is open now.

func (r *repeated) CloseSend() error             { return r.now().CloseSend() }
func (r *repeated) Header() (metadata.MD, error) { return r.now().Header() }
func (r *repeated) Trailer() metadata.MD         { return r.now().Trailer() }
func (r *repeated) Context() context.Context     { return r.now().Context() }
