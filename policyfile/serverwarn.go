package policyfile

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/spillgate/spillgate/clientip"
	"go.yaml.in/yaml/v4"
)

// serverWarnings tells what is odd about the server part.
func (f *File) serverWarnings(root *yaml.Node, doc *document, add func(code string, at *yaml.Node, msg, fix string)) {
	server := under(root, "server")
	if all := f.Server.ClientIP.Trusted; len(all) > 0 && !slices.ContainsFunc(all, func(s string) bool { return s != clientip.Unix }) {
		add("nobody-trusted", under(under(server, "client_ip"), "trusted"), "client_ip trusts unix alone: the gateway listens at no unix socket, so no peer comes from one, and the header is never read",
			"name the proxies' addresses or networks, too")
	}
	if near := nearHeader(f.Server.ClientIP.Header); near != "" {
		add("near-header", under(under(server, "client_ip"), "from"), fmt.Sprintf("client_ip reads %q, which is nearly %s: if the proxies don't set it, every client is the proxy to the gateway, and all share one limit", f.Server.ClientIP.Header, near),
			fmt.Sprintf("did you mean %q?", near))
	}
	const back = ": the gateway listens there itself, so what it passes on comes back to it, again and again"
	if loops(f.Server.Listen, f.Server.Upstream) {
		add("loop", under(server, "upstream"), "upstream"+back, "write the address of the server behind, or another one under listen")
	}
	rules := f.Policy.Rules()
	for i := range rules {
		if b := rules[i].Backup; f.ForGateway && b != nil && !rules[i].Disabled && loops(f.Server.Listen, b.Upstream) {
			add("loop", target(doc.places[i].at("backup")), "backup"+back, "write the address of another server")
		}
	}
}

// addressHeaders are headers with a single address that proxies are known to
// set. Any other may be one, too.
var addressHeaders = []string{
	"x-real-ip", "cf-connecting-ip", "cf-connecting-ipv6", "true-client-ip", "fastly-client-ip", "fly-client-ip", "x-client-ip", "x-cluster-client-ip",
	"x-azure-clientip", "x-azure-socketip", "x-envoy-external-address", "x-appengine-user-ip", "x-nf-client-connection-ip", "do-connecting-ip", "x-original-forwarded-for",
}

// nearHeader returns the header that name is a slip of, "" if it is none.
func nearHeader(name string) string {
	name = strings.ToLower(name)
	if len(name) > 64 || slices.Contains(addressHeaders, name) {
		return ""
	}
	letters := strings.NewReplacer("-", "", "_", "")
	for _, known := range addressHeaders {
		if k := letters.Replace(known); distance(letters.Replace(name), k) <= len(k)/7 {
			return known
		}
	}
	return ""
}

// loops reports whether the URL of an upstream surely leads to where the gateway
// listens.
func loops(listen, upstream string) bool {
	u, err := url.Parse(upstream)
	if err != nil || upstream == "" {
		return false
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "h2c": "80", "https": "443"}[u.Scheme]
	}
	host, at, err := net.SplitHostPort(listen)
	if err != nil || at != port {
		return false
	}
	here, there := strings.ToLower(host), strings.ToLower(u.Hostname())
	local := func(s string) bool {
		a, err := netip.ParseAddr(s)
		return s == "localhost" || err == nil && (a.Unmap().IsLoopback() || a.IsUnspecified())
	}
	if a, err := netip.ParseAddr(here); here == "" || err == nil && a.IsUnspecified() {
		return local(there)
	}
	same := func(a, b string) bool { return a == "localhost" && (b == "127.0.0.1" || b == "::1") }
	return here == there || same(here, there) || same(there, here)
}
