package policyfile

import (
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// port reports whether s is a port.
func port(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

var hostText = regexp.MustCompile(`^[\pL\pN._-]*$`)

// host reports whether s can be the name of a machine, or is an address. What
// is made of digits and dots alone and is no address is a slip: a port where
// the host belongs, or half an address.
func host(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	return hostText.MatchString(s) && strings.Trim(s, "0123456789.") != ""
}

// listenAt reports whether a server can listen at s: a host, which may be
// empty, and a port.
func listenAt(s string) bool {
	h, p, err := net.SplitHostPort(s)
	return err == nil && port(p) && (h == "" || host(h))
}

// listen is a host and a port to listen at.
var listen = kind[string]{
	schema: schema{
		"type": "string", "default": DefaultListen,
		"pattern": `^(\[[0-9A-Fa-f:.]+(%[^\]]+)?\]|([0-9]+\.){3}[0-9]+|[A-Za-z0-9._-]*[A-Za-z_-][A-Za-z0-9._-]*|):[0-9]+$`,
	},
	read: func(d *decoder, n *yaml.Node) (string, bool) {
		const want = "an address and a port, such as " + DefaultListen + " or :8080"
		n, ok := d.scalar(n, want)
		if !ok {
			return "", false
		}
		if n.ShortTag() == "!!str" && listenAt(n.Value) {
			return n.Value, true
		}
		d.wrong(n, want, fixListen(n.Value))
		return "", false
	},
}

// fixListen returns the fix for what is no address and port to listen at.
func fixListen(s string) string {
	if _, rest, ok := strings.Cut(s, "://"); ok {
		s = strings.TrimRight(rest, "/")
	}
	h, p, err := net.SplitHostPort(s)
	last := s[strings.LastIndexByte(s, ':')+1:]
	switch {
	case port(s) && s != "0":
		return "write 127.0.0.1:" + s + " or :" + s
	case err == nil && port(p) && !host(h) && h == "*", err == nil && port(p) && !host(h) && port(h):
		return "write 127.0.0.1:" + p + " or :" + p
	case listenAt(s):
		return "write " + s
	case s != "" && listenAt(net.JoinHostPort(s, "8080")) && (!strings.Contains(s, ":") || !port(last)):
		return "name the port: " + net.JoinHostPort(s, "8080")
	case strings.HasPrefix(s, "[") && listenAt(s+":8080"):
		return "name the port: " + s + ":8080"
	case strings.Count(s, ":") > 1 && listenAt("["+strings.TrimSuffix(s, ":"+last)+"]:"+last):
		return "write \"[" + strings.TrimSuffix(s, ":"+last) + "]:" + last + `"`
	}
	return "write " + DefaultListen + " or :8080"
}

// server reports whether s is the URL of a server: a host, maybe a port and a
// path, and nothing else. A path that begins with two slashes is a host to many
// servers.
func server(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https" || u.Scheme == "h2c") && u.User == nil && u.RawQuery == "" && !u.ForceQuery &&
		u.Fragment == "" && !strings.HasPrefix(u.Path, "//") && host(u.Hostname()) && (u.Port() == "" || port(u.Port()))
}

// upstream is the URL of a server.
var upstream = kind[string]{
	schema: schema{"type": "string", "pattern": "^(https?|h2c)://[^/?#@]+(/([^/?#][^?#]*)?)?$", "examples": []string{"http://127.0.0.1:9000", "h2c://127.0.0.1:50051"}},
	read: func(d *decoder, n *yaml.Node) (string, bool) {
		const want = "the URL of a server, such as http://127.0.0.1:9000, without user, query and fragment"
		n, ok := d.scalar(n, want)
		if !ok {
			return "", false
		}
		if n.ShortTag() == "!!str" && server(n.Value) {
			return n.Value, true
		}
		d.wrong(n, want, fixUpstream(n.Value))
		return "", false
	},
}

// fixUpstream returns the fix for what is no URL of a server. It does not
// repeat a password.
func fixUpstream(s string) string {
	_, rest, ok := strings.Cut(s, "://")
	if !ok {
		rest = s
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	authority, path, _ := strings.Cut(rest, "/")
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	if port(authority) {
		authority = "127.0.0.1:" + authority
	}
	if path = strings.TrimLeft(path, "/"); path != "" {
		path = "/" + path
	}
	scheme := "http://"
	switch said, _, _ := strings.Cut(strings.ToLower(s), ":"); said {
	case "https", "grpcs":
		scheme = "https://"
	case "h2c", "grpc", "http2", "h2":
		scheme = "h2c://"
	}
	if u := scheme + authority + path; server(u) {
		return "write " + u
	}
	return "write http://127.0.0.1:9000, with the server's own host and port"
}
