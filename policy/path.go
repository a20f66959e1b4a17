package policy

// AppendPath appends the normal form of a URL path (still percent-encoded, as
// sent) to dst: the one form in which rules match paths, so that //login,
// /login/, /%6cogin and /a/../login are all /login.
//
// In order: percent-encoded octets are decoded (RFC 3986, 6.2.2.2), except
// those whose decoding would change the structure (%2F, %25) or that are
// control characters, whose digits become upper case; backslashes count as
// slashes, since many servers treat them so; path parameters (";a=b") are cut
// from each segment; empty segments and "." vanish, ".." removes the segment
// before it (5.2.4), never above the root; a trailing slash is dropped. The
// empty path is "/".
func AppendPath(dst []byte, raw string) []byte {
	start := len(dst)
	for i := 0; i < len(raw); {
		// One segment: decode into dst after a slash.
		seg := len(dst)
		dst = append(dst, '/')
		param := false
		for ; i < len(raw); i++ {
			c := raw[i]
			if c == '/' || c == '\\' {
				break
			}
			if c == ';' {
				param = true
			}
			if c == '%' && i+2 < len(raw) && isHex(raw[i+1]) && isHex(raw[i+2]) {
				v := unhex(raw[i+1])<<4 | unhex(raw[i+2])
				i += 2
				if v == '\\' {
					v = '/' // ends a segment, as the plain one does
				}
				switch {
				case param:
				case v == '/' || v == '%' || v < 0x20 || v == 0x7f:
					dst = append(dst, '%', hexDigits[v>>4], hexDigits[v&15])
				default:
					dst = append(dst, v)
				}
				continue
			}
			if !param {
				dst = append(dst, c)
			}
		}
		i++ // the slash
		switch string(dst[seg+1:]) {
		case "", ".":
			dst = dst[:seg]
		case "..":
			dst = dst[:seg]
			for len(dst) > start {
				c := dst[len(dst)-1]
				dst = dst[:len(dst)-1]
				if c == '/' {
					break
				}
			}
		}
	}
	if len(dst) == start {
		dst = append(dst, '/')
	}
	return dst
}

const hexDigits = "0123456789ABCDEF"

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}
