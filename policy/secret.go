package policy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"
	"strings"
	"sync"

	"github.com/spillgate/spillgate"
)

// secretWords are what names of headers, cookies and query parameters have in
// them whose values let somebody in.
var secretWords = []string{
	"auth", "token", "secret", "passw", "credential", "session", "cookie",
	"api-key", "api_key", "apikey", "access-key", "access_key", "signature",
}

// secretParts are those that stand by themselves in such names: between what is
// neither a letter nor a digit. In a query, where Google's stands, a key is one, and a
// code, as OAuth has it; in headers there are many others.
var secretParts = []string{"jwt", "sig", "pwd", "pass", "pin", "otp", "sid", "hmac"}

// Secret reports whether the value of a is one that lets somebody in, judged by
// where it stands: every cookie, and headers and query parameters with a name
// such as authorization, x-api-key or access_token, whoever sets them. As a part of a key it is
// shown as a fingerprint, as with the word secret; see [Part].
func (a Attribute) Secret() bool {
	switch a.Kind {
	case Cookie:
		return true
	case Header, Query, Proxy:
		name := strings.ToLower(a.Name)
		for _, w := range secretWords {
			if strings.Contains(name, w) {
				return true
			}
		}
		for part := range strings.FieldsFuncSeq(name, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }) {
			if slices.Contains(secretParts, part) || a.Kind == Query && (part == "key" || part == "code") {
				return true
			}
		}
	}
	return false
}

// Hides reports whether the value of a, an attribute of p, is shown as a
// fingerprint only.
func (p *Part) Hides(a Attribute) bool { return p.Secret || !p.Shown && a.Secret() }

// hides reports whether some part of a rule's key is a secret.
func (p *Policy) hides() bool {
	for i := range p.plain {
		for j := range p.plain[i].Key {
			part := &p.plain[i].Key[j]
			for k := range part.Attributes {
				if part.Hides(part.Attributes[k]) {
					return true
				}
			}
		}
	}
	return false
}

// FingerprintKey keys the fingerprints by which secret parts of keys are
// shown: HMAC-SHA-256, cut to 64 bits. Engines with the same key show the same
// caller by the same fingerprint. Without this option, or with an empty key,
// the key is derived from the seed ([Seeded]): engines that share a store have
// the same, and where the seed is random, fingerprints change with the process.
// The key is copied.
func FingerprintKey(key []byte) EngineOption {
	key = append([]byte(nil), key...)
	return func(o *engineOptions) { o.fingerprint = key }
}

// fingerprints makes fingerprints.
type fingerprints struct {
	hides      bool // a rule has a secret in its key
	pool       sync.Pool
	partitions spillgate.Seed
}

// printer is the memory of one fingerprint, reused.
type printer struct {
	mac  hash.Hash
	sum  [sha256.Size]byte
	text []byte
}

func (f *fingerprints) init(p *Policy, key []byte, seed spillgate.Seed) {
	f.hides = p.hides()
	if len(key) == 0 {
		secret := seed.Bytes()
		key = derived(secret[:], "fingerprints")
	}
	f.pool.New = func() any { return &printer{mac: hmac.New(sha256.New, key), text: make([]byte, 0, 256)} }
	f.partitions = spillgate.SeedFrom([16]byte(derived(key, "partitions")))
}

// derived returns the key for one purpose that key keeps secret.
func derived(key []byte, purpose string) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(purpose))
	return mac.Sum(nil)
}

// fingerprintMark begins a fingerprint where a value would stand.
const fingerprintMark = "hmac:"

// appendFingerprint appends what is shown in place of the value v of a.
func (f *fingerprints) appendFingerprint(dst []byte, a *Attribute, v []byte) []byte {
	p := f.pool.Get().(*printer)
	p.mac.Reset()
	// The attribute's name and a NUL come first, so that one secret in two
	// places is not seen to be the same.
	p.text = append(append(append(p.text[:0], kindNames[a.Kind]...), a.Name...), 0)
	_, _ = p.mac.Write(p.text)
	_, _ = p.mac.Write(v)
	sum := p.mac.Sum(p.sum[:0])
	dst = hex.AppendEncode(append(dst, fingerprintMark...), sum[:8])
	f.pool.Put(p)
	return dst
}

// Fingerprint returns what e shows in place of value where the attribute is a
// secret part of a key, such as "hmac:0f3a…" of 16 hexadecimal digits, to find
// a token that is at hand in lists and answers. What the part does to values
// (lower, trim) is up to the caller; what every rule does to a credential is done.
func (e *Engine) Fingerprint(a Attribute, value string) string {
	return string(e.prints.appendFingerprint(nil, &a, []byte(normalText(a, value))))
}

// Partition returns a name for the caller that o counts for, to be told to
// clients (the parameter pk of RateLimit): the same for the same caller while
// the engine's seed and [FingerprintKey] stay, and nothing can be learnt from
// it of the key or of where it is kept.
func (v *Verdict) Partition(o *Outcome) (name [8]byte) {
	if v == nil || v.engine == nil {
		return name
	}
	var digest [16]byte
	binary.BigEndian.PutUint64(digest[:8], o.key[0])
	binary.BigEndian.PutUint64(digest[8:], o.key[1])
	k := v.engine.prints.partitions.Key(digest[:])
	binary.BigEndian.PutUint64(name[:], k[0])
	return name
}

// maxScratch is how many bytes of values are kept for the next request.
const maxScratch = 64 << 10

// end forgets the request. Nothing of a secret stays in memory that is reused,
// nor does room for values as long as nobody else's.
func (r *request) end(hides bool) {
	r.attrs = nil
	for _, b := range [...]*[]byte{&r.buf, &r.key, &r.cache.text} {
		if cap(*b) > maxScratch {
			*b = nil
		} else if hides {
			clear((*b)[:cap(*b)])
		}
	}
}
