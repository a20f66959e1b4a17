package grpclimit

import (
	"context"
	"net"
	"net/netip"
	"strconv"

	"github.com/spillgate/spillgate/clientip"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// attributes is what is known of a call. Values are found when they are asked
// for.
type attributes struct {
	*options
	ctx      context.Context
	method   string // full
	msg      any    // nil if there is none yet
	client   netip.Addr
	resolved bool
	several  bool // some metadata that was asked for has several values
}

func (a *attributes) begin(o *options, ctx context.Context, method string, msg any) {
	a.options, a.ctx, a.method, a.msg, a.client, a.resolved, a.several = o, ctx, method, msg, netip.Addr{}, false, false
}

// ClientAddr implements [policy.Addressed].
func (a *attributes) ClientAddr() netip.Addr {
	if !a.resolved {
		a.client, a.resolved = a.address(), true
	}
	return a.client
}

func (a *attributes) address() netip.Addr {
	p, ok := peer.FromContext(a.ctx)
	if !ok || p.Addr == nil {
		return netip.Addr{}
	}
	if remote, ok := a.trusted(p.Addr); ok {
		md, _ := metadata.FromIncomingContext(a.ctx)
		return a.resolver.Addr(remote, md)
	}
	if tcp, ok := p.Addr.(*net.TCPAddr); ok {
		return clientip.Normal(tcp.AddrPort().Addr())
	}
	addr, _ := clientip.Parse(p.Addr.String()) // the zero Addr if it is none
	return addr
}

// trusted reports whether a peer is a trusted proxy, and returns its address as a
// resolver reads it.
func (a *attributes) trusted(addr net.Addr) (remote string, ok bool) {
	if a.resolver == nil {
		return "", false
	}
	if _, unix := addr.(*net.UnixAddr); !unix {
		remote = addr.String()
	}
	return remote, a.resolver.Trusts(remote)
}

// proxied reports whether the peer is a trusted proxy, so that what it sets is
// proven.
func (a *attributes) proxied() bool {
	p, ok := peer.FromContext(a.ctx)
	if !ok || p.Addr == nil {
		return false
	}
	_, ok = a.trusted(p.Addr)
	return ok
}

// AppendAttr implements [policy.Attributes].
func (a *attributes) AppendAttr(dst []byte, attr policy.Attribute) ([]byte, bool) {
	switch attr.Kind {
	case policy.ClientIP:
		addr := a.ClientAddr()
		return addr.AppendTo(dst), addr.IsValid()
	case policy.Method:
		return append(dst, "POST"...), true
	case policy.Path:
		return a.paths.Append(dst, a.method), true
	case policy.Route:
		return append(dst, a.method...), true
	case policy.Host:
		n := len(dst)
		if values := metadata.ValueFromIncomingContext(a.ctx, ":authority"); len(values) > 0 {
			dst = policy.AppendHost(dst, values[0])
		}
		return dst, len(dst) > n
	case policy.Header:
		name := attr.Name
		if name == "host" {
			name = ":authority"
		}
		return a.appendMetadata(dst, name)
	case policy.Proxy:
		if !a.proxied() {
			return dst, false
		}
		return a.appendMetadata(dst, attr.Name)
	case policy.TLSClient:
		name := certified(a.ctx)
		return append(dst, name...), name != ""
	case policy.ContentLength:
		n, ok := size(a.msg)
		if !ok {
			return dst, false
		}
		return strconv.AppendInt(dst, n, 10), true
	case policy.Claim:
		if a.claim == nil {
			return dst, false
		}
		v, ok := a.claim(a.ctx, attr.Name)
		return append(dst, v...), ok
	}
	for i := range a.sources {
		if s := &a.sources[i]; s.attribute == attr {
			v := s.get(a.ctx)
			return append(dst, v...), v != ""
		}
	}
	return dst, false
}

func (a *attributes) appendMetadata(dst []byte, name string) ([]byte, bool) {
	values := metadata.ValueFromIncomingContext(a.ctx, name)
	a.several = a.several || len(values) > 1 && name != "cookie"
	return policy.AppendLines(dst, name, values), len(values) > 0
}

// AppendRepeats implements [policy.Repeating].
func (a *attributes) AppendRepeats(dst []byte, attr policy.Attribute) []byte {
	switch {
	case !a.several: // nor has this
	case attr.Kind == policy.Header && attr.Name != "host", attr.Kind == policy.Proxy && a.proxied():
		return policy.AppendRepeats(dst, attr.Name, metadata.ValueFromIncomingContext(a.ctx, attr.Name))
	}
	return dst
}
