package policy

import "strings"

// passedOn says what to use in place of the field of that name where what it
// holds is the client's word, though a proxy handed it on; "" where it may be the
// proxy's. Of the lists to which proxies add, the client begins them.
func passedOn(name string) string {
	switch name {
	case "host":
		return "host"
	case "forwarded", "x-forwarded-for":
		return "client.ip"
	case "cookie":
		return "cookie.NAME"
	case "content-length":
		return "content-length"
	case "user-agent", "via", "referer", "origin":
		return "header." + name
	}
	if strings.HasPrefix(name, ":") { // in gRPC
		return "host, method or path"
	}
	return ""
}
